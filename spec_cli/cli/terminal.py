"""Standard output for the answer and nothing else; standard error for the rest."""

from __future__ import annotations

import os
import re
import select
import sys
import textwrap
from collections.abc import Callable, Sequence as Seq
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, TextIO

from spec_cli.errors import FileError, Interrupted

if TYPE_CHECKING:
    from spec_cli.cli.wrap import Piece, Wrap

LEAST_COLUMNS = 10  # for lines of words
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(text: str) -> str:
    """The text with control characters (C0, C1, not newline and tab) as escapes, safe for a terminal."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def say(line: str) -> None:
    """One line on standard error. Nobody listening is no error."""
    control((shown(line) if is_terminal(sys.stderr) else line) + "\n")


def say_wrapped(line: str) -> None:
    """The same, between words on a terminal that is narrower than the line."""
    if is_terminal(sys.stderr):
        fold = textwrap.TextWrapper(width() - 1, break_on_hyphens=False, break_long_words=False)
        line = "\n".join(fold.fill(part) for part in line.split("\n"))
    say(line)


def size() -> os.terminal_size:
    """Of the terminal at standard error, else 80 x 24."""
    try:
        return os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return os.terminal_size((80, 24))


def width() -> int:
    """Its columns, for lines of words; 80 where it does not say."""
    return max(LEAST_COLUMNS, size().columns or 80)


def columns_of(stream: TextIO | None) -> int | None:
    """The width of the terminal at a standard stream; None where there is none, or it has no width to speak of."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream else 0
    except (OSError, ValueError):
        return None
    return columns if columns >= LEAST_COLUMNS else None


def on_one_screen() -> bool:
    """Whether answers and what is said about them share a terminal."""
    return is_terminal(sys.stdout) and is_terminal(sys.stderr)


def counted(n: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{n} {what}{'s' * (n != 1)}"


def control(text: str) -> None:
    """Text for standard error as it is, control sequences included."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
        sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stderr.buffer.flush()


def quiet(line: str) -> None:
    """Say nothing."""


CUT = "\u2026"  # where an answer was cut, for a person only: never on standard output
STYLES = {"plain": "", "accepted": "\x1b[32m", "corrected": "\x1b[33m"}  # by tokens.Kind
LEGEND = "colours: green for accepted guesses, yellow for corrections, none for tokens that nobody guessed"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is there, and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_dumb() -> bool:
    """Whether terminals understand nothing but text."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown", "") and os.name != "nt"


def styled(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can show colours, and may (NO_COLOR)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and not is_dumb()


def wants_color(asked: str) -> bool:
    """Whether standard output is coloured: on, off, or auto (a terminal that can, and no NO_COLOR)."""
    return styled(sys.stdout) if asked == "auto" else asked == "on"


class Output:
    """Where the answer goes: strict UTF-8, written as it is made.

    path: a new file, or a device, instead of standard output, opened by the first write.
    wraps: on a terminal, lines end between words (see `Wrap`); elsewhere the text stays as it is.
    Raises BrokenPipeError when the reader is gone, FileError when a file cannot be written.
    """

    def __init__(self, path: Path | None, *, wraps: bool = False) -> None:
        if path is not None and is_stdout(path):
            path = None  # opening it would empty a file that it is redirected to
        self._path = path
        if path is None and sys.stdout is None:
            raise FileError("standard output is closed (-o FILE writes to a file)")
        self._file: BinaryIO | None = sys.stdout.buffer if path is None else None
        self.on_screen = path is None and is_terminal(sys.stdout)
        self._clean: Callable[[str], str] = shown if self.on_screen else str
        self._wraps = wraps and self.on_screen and not is_dumb()
        self._stuck = False
        self.begin()
        if path is not None:
            require_new(path, "-o/--output")

    def write(self, text: str, style: str = "") -> str:
        """Write and flush; what is on the screen now of it. style: a terminal's control sequence for the text."""
        text = self._clean(text)
        return self._put(self._wrap.feed(text, style) if self._wrap else [(text, style)])

    def flush(self) -> str:
        """Write the word that is held back."""
        return self._put(self._wrap.flush() if self._wrap else [])

    def _put(self, pieces: Seq[Piece]) -> str:
        text = "".join(piece for piece, _ in pieces)
        if self._stuck:
            return ""
        try:
            if self._file is None:
                assert self._path
                self._file = self._path.open("wb")
            styled = "".join(f"{style}{piece}\x1b[0m" if style and piece else piece for piece, style in pieces)
            self._file.write(styled.encode("utf-8", "replace"))
            self._file.flush()
        except BrokenPipeError:
            raise
        except Interrupted:
            self._stuck = True  # nobody reads: what follows would wait again
            raise
        except OSError as error:
            if self._path is None:
                abandon_stdout()
            where = f"-o/--output: {self._path}" if self._path else "standard output"
            raise FileError(f"{where}: {error.strerror}") from None
        if text:
            self.ends_line = text.endswith("\n")
        return text

    def begin(self) -> None:
        """Another answer, or more of one behind other text: who did not read the last one may do so now."""
        self._stuck = False
        self.ends_line = True
        self._wrap: Wrap | None = None
        if self._wraps:
            from spec_cli.cli.wrap import Wrap  # its library takes an eighth of a second

            self._wrap = Wrap(lambda: columns_of(sys.stdout))

    def waits(self) -> bool:
        """Whether a write waits for a reader, or for one to open its file."""
        try:
            return self._file is None or not select.select([], [self._file], [], 0)[1]
        except (OSError, ValueError):
            return True

    def end_line(self, *, cut: bool = False) -> None:
        """One final newline, unless the text has its own; a file exists from now on, if empty.

        cut: the text might have gone on; a person is shown where.
        """
        self.flush()
        if cut and self.on_screen and is_terminal(sys.stderr) and not self.ends_line:
            control(CUT)
        self.write("" if self.ends_line else "\n")

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path and self._file:
            with suppress(OSError):  # every write was flushed, and answered for
                self._file.close()


def require_writable(path: Path, flag: str) -> None:
    """Refuse early what cannot be written later, without touching what is there. Raises FileError."""
    if os.path.isdir(path):
        raise FileError(f"{flag}: {path} is a directory")
    probe = path if os.path.exists(path) else path.parent
    if not os.path.exists(probe):
        raise FileError(f"{flag}: {path}: there is no folder {path.parent}")
    if not os.access(probe, os.W_OK):
        raise FileError(f"{flag}: {path} cannot be written")


def require_new(path: Path, flag: str) -> None:
    """So for a file that has something in it: nothing is written over. Raises FileError."""
    require_writable(path, flag)
    if os.path.isfile(path) and os.path.getsize(path) and not is_stdout(path):
        raise FileError(f"{flag}: {path} exists: remove it or give another name")


def is_stdout(path: Path) -> bool:
    """Whether a name means standard output, as /dev/stdout does."""
    return sys.stdout is not None and same_file(path, sys.stdout.fileno())


def same_file(a: Path, b: Path | str | int) -> bool:
    """Whether two names, or a name and an open descriptor, are one file."""
    try:
        return os.path.samestat(os.stat(a), os.stat(b))
    except (OSError, ValueError):
        return False


def abandon_stdout() -> None:
    """After a closed pipe: nothing more to flush, at exit neither."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
