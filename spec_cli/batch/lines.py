"""A stream of bytes as numbered lines, read ahead by a thread, never more of it than is needed."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

MOST_BYTES = 1 << 26  # no context holds more; a pipe may have no line ends
_CHUNK = 1 << 16
_BLANK = b" \t\r\v\f"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank, without its LF or CRLF. number: from 1; end: where the next one begins, in bytes."""

    number: int
    data: bytes
    end: int
    too_long: bool = False


def lines(fd: int) -> Iterator[Line]:
    """The lines of a file descriptor: LF ends one, and nothing else; a byte order mark is skipped.

    Of a line of more than MOST_BYTES only its beginning is kept.
    """
    number, at, pending, size, first = 1, 0, bytearray(), 0, True

    def line() -> Line | None:
        data = bytes(pending).removesuffix(b"\r")
        if first:
            data = data.removeprefix(b"\xef\xbb\xbf")
        return Line(number, data, at, size > MOST_BYTES) if data.strip(_BLANK) else None

    while chunk := os.read(fd, _CHUNK):
        start = 0
        while start < len(chunk):
            cut = chunk.find(b"\n", start)
            end = len(chunk) if cut < 0 else cut
            size += end - start
            if len(pending) <= MOST_BYTES:
                pending += chunk[start:end]
            at += end - start
            start = end
            if cut >= 0:
                start, at = start + 1, at + 1
                if (found := line()) is not None:
                    yield found
                number, pending, size, first = number + 1, bytearray(), 0, False
    if (found := line()) is not None:
        yield found


class Lines:
    """`lines` of a descriptor that may keep one waiting, for a caller that has other things to do."""

    def __init__(self, fd: int, ahead: int) -> None:
        self._queue: queue.Queue[Line | OSError | None] = queue.Queue(ahead)
        self.ended = False
        self._seen: Line | OSError | None = None
        self._has_seen = False
        threading.Thread(target=self._read, args=(fd,), daemon=True).start()

    def _read(self, fd: int) -> None:
        try:
            for line in lines(fd):
                self._queue.put(line)
            self._queue.put(None)
        except OSError as error:
            self._queue.put(error)

    def arrives(self, seconds: float | None = None) -> bool:
        """Wait for the next line, or the end, at most so long; whether it came."""
        if not self._has_seen:
            try:
                self._seen, self._has_seen = self._queue.get(timeout=seconds), True
            except queue.Empty:
                return False
        return True

    def peek(self) -> Line | None:
        """The line that `arrives`, None for the end; `take` gives it again. Raises OSError."""
        assert self._has_seen
        if isinstance(self._seen, OSError):
            raise self._seen
        return self._seen

    def take(self, wait: bool) -> Line | None:
        """The next line; None when there is none yet (only if not `wait`), or `ended`. Raises OSError."""
        if self.ended:
            return None
        try:
            line = self._seen if self._has_seen else self._queue.get(block=wait)
        except queue.Empty:
            return None
        self._seen, self._has_seen = None, False
        if isinstance(line, OSError):
            raise line
        self.ended = line is None
        return line
