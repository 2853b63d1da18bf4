"""Where the user's turns come from: an input line with history, plain lines of a terminal, or a pipe."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from typing import Protocol

from spec_cli.cli.prompt import MOST_BYTES, utf8
from spec_cli.cli.terminal import control, is_dumb, is_terminal
from spec_cli.errors import UsageError
from spec_cli.settings import Settings

PROMPT, QUOTES = "> ", '"""'
COMMAND = re.compile(r"/[A-Za-z_?-][\w?-]*")
Words = Callable[[str], list[str] | None]
"""What Tab offers for a command line so far; None: names of files."""


class Keyboard(Protocol):
    """Gives the user's turns."""

    edits: bool
    """Whether a text can be offered for editing."""
    piped: bool
    """Whether nobody sits at it."""

    def read(self, offered: str = "") -> str:
        """The next turn. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""


def is_command(text: str) -> bool:
    """Whether the text is one line that begins like a command. `/etc/hosts` and `// x` do not."""
    return "\n" not in text and COMMAND.fullmatch(text.partition(" ")[0].partition("\t")[0]) is not None


def is_open(text: str, multiline: bool) -> bool:
    """Whether Enter only adds a line to this text: it ends with a backslash, or is a block in three quotes.

    multiline: a backslash ends the text instead (llama.cpp's -mli).
    """
    if text.startswith(QUOTES):
        return len(text) < 2 * len(QUOTES) or not text.rstrip().endswith(QUOTES)
    return text.endswith("\\") != multiline


def unquoted(text: str) -> str:
    """The text without the quotes of a block."""
    if text.startswith(QUOTES) and not is_open(text, False):
        return text.rstrip()[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text


class Lines:
    """A pipe or a file: a turn a line, as it is."""

    edits, piped = False, True

    def __init__(self) -> None:
        self._number = 0

    def read(self, offered: str = "") -> str:
        """The next line. Raises UsageError for one that is not UTF-8 text."""
        if sys.stdin is None:
            raise EOFError
        data = sys.stdin.buffer.readline(MOST_BYTES + 1)
        self._number += 1
        if not data:
            raise EOFError
        name = f"standard input, line {self._number}"
        if len(data) > MOST_BYTES:
            while data and not data.endswith(b"\n"):
                data = sys.stdin.buffer.readline(MOST_BYTES)
            raise UsageError(f"{name}: more than {MOST_BYTES >> 20} MiB are no prompt")
        text = utf8(data, name, UsageError)
        text = text.removeprefix("\ufeff") if self._number == 1 else text
        return text.removesuffix("\n").removesuffix("\r")


class SimpleTerminal(Lines):
    """A terminal without editing: lines until the text is complete."""

    piped = False

    def __init__(self, multiline: bool) -> None:
        super().__init__()
        self._multiline = multiline

    def read(self, offered: str = "") -> str:
        """The next turn, which may have several lines."""
        lines: list[str] = []
        while True:
            control("  " if lines else PROMPT)
            old = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                lines.append(super().read())
            except KeyboardInterrupt:
                control("\n")
                raise
            except EOFError:
                control("\n")
                if not lines:
                    raise
                return "\n".join(lines)
            finally:
                signal.signal(signal.SIGINT, old)
            text = "\n".join(lines)
            if is_command(text):
                return text
            if not is_open(text, self._multiline):
                return unquoted(text.removesuffix("\\") if self._multiline else text)
            if not text.startswith(QUOTES):
                lines[-1] = lines[-1].removesuffix("\\")


def keyboard(settings: Settings, words: Words, say: Callable[[str], None]) -> Keyboard:
    """What the standard streams and `--simple-io` ask for."""
    if not is_terminal(sys.stdin):
        return Lines()
    if settings.simple_io or is_dumb() or not (is_terminal(sys.stderr) or is_terminal(sys.stdout)):
        return SimpleTerminal(settings.multiline_input)
    from spec_cli.cli.chat.input_line import InputLine  # it takes an eighth of a second

    return InputLine(settings, words, say)
