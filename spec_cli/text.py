"""Bytes of tokens to text: stop strings, and characters that are split over tokens."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence as Seq

from spec_cli.tokens import Kind


class TextStream:
    """Releases text as soon as nothing in it can belong to a stop string or an unfinished character.

    The stop string that is complete first ends the text, the longer one where two are complete
    together. Bytes that are no UTF-8 become U+FFFD, once, when it is certain.
    """

    def __init__(
        self, stops: Seq[str], emit: Callable[[str], None], mark: Callable[[Kind], None] = lambda kind: None
    ) -> None:
        self._stops = [(stop, stop.encode()) for stop in stops]
        self._emit, self._mark = emit, mark
        self._kinds: list[tuple[int, Kind]] = []  # of the pending bytes: where each token's end, and its kind
        self._fed = 0
        self._parts: list[str] = []
        self._pending = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.n_bytes = 0
        """Bytes of tokens that became text: where the text ends in the stream of tokens."""
        self.stop: str | None = None
        """The stop string that ended the text."""

    def feed(self, piece: bytes, kind: Kind = "plain") -> bool:
        """Take a token's bytes; True when a stop string is complete (nothing is released after it)."""
        self._pending += piece
        self._fed += len(piece)
        self._kinds.append((self._fed, kind))
        found = [(at + len(stop), at, name) for name, stop in self._stops if (at := self._pending.find(stop)) >= 0]
        if found:
            _, start, self.stop = min(found)
            self._release(start)
            self._pending = b""
            return True
        self._release(len(self._pending) - self._held_back())
        return False

    def close(self) -> None:
        """Release what was held back: no more bytes come."""
        self._release(len(self._pending), final=True)

    def _held_back(self) -> int:
        """Length of the longest end of the pending bytes that begins a stop string."""
        longest = max((len(stop) for _, stop in self._stops), default=1) - 1
        for n in range(min(longest, len(self._pending)), 0, -1):
            tail = self._pending[-n:]
            if any(stop.startswith(tail) for _, stop in self._stops):
                return n
        return 0

    def _release(self, n: int, final: bool = False) -> None:
        """Let `n` bytes become text, those of one kind at a time."""
        goal = self.n_bytes + n
        while self.n_bytes < goal:
            kind, end = self._kinds[0][1], self.n_bytes
            while end < goal and self._kinds[0][1] == kind:
                end = min(self._kinds[0][0], goal)
                if end == self._kinds[0][0]:
                    del self._kinds[0]
            self._pass_on(end - self.n_bytes, kind)
        if final:
            self._pass_on(0, self._kinds[0][1] if self._kinds else "plain", final)

    def _pass_on(self, n: int, kind: Kind, final: bool = False) -> None:
        text = self._decoder.decode(self._pending[:n], final)
        self.n_bytes += n
        self._pending = self._pending[n:]
        if text:
            self._mark(kind)
            self._parts.append(text)
            self._emit(text)

    @property
    def whole(self) -> str:
        """All text released so far."""
        return "".join(self._parts)
