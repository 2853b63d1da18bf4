"""Where the user's turns come from: an input line with history, plain lines of a terminal, or a pipe."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from platformdirs import user_state_path
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle

from spec_cli.cli.prompt import MOST_BYTES, utf8
from spec_cli.cli.signals import EXIT
from spec_cli.cli.terminal import control, is_dumb, is_terminal
from spec_cli.errors import Interrupted, UsageError
from spec_cli.settings import Settings

PROMPT, QUOTES = "> ", '"""'
COMMAND = re.compile(r"/[A-Za-z_-]+")
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
    return "\n" not in text and COMMAND.fullmatch(text.partition(" ")[0]) is not None


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
            lines.append(super().read())
            text = "\n".join(lines)
            if not is_open(text, self._multiline):
                return unquoted(text.removesuffix("\\") if self._multiline else text)
            if not text.startswith(QUOTES):
                lines[-1] = lines[-1].removesuffix("\\")


class Terminal:
    """An input line with history, completion and several lines (prompt_toolkit), drawn on standard error."""

    edits, piped = True, False

    def __init__(self, settings: Settings, words: Words, say: Callable[[str], None]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(say), completer=_Completer(words), complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False, multiline=True, prompt_continuation="  ", enable_suspend=True,
            editing_mode=EditingMode.VI if settings.vi else EditingMode.EMACS,
            key_bindings=_keys(settings.multiline_input),
            output=create_output(sys.stderr if is_terminal(sys.stderr) else sys.stdout),
        )  # fmt: skip
        self._session.app.timeoutlen = 0.2  # after Escape, which begins Alt-Enter

    def read(self, offered: str = "") -> str:
        """The next turn. offered: a text to begin with. Raises Interrupted for SIGTERM."""
        app = self._session.app

        def leave(*_: object) -> None:
            error = Interrupted("interrupted")
            error.exit_code = EXIT[signal.SIGTERM]
            if app.loop:
                app.loop.call_soon_threadsafe(lambda: app.exit(exception=error))

        old = signal.signal(signal.SIGTERM, leave)
        try:
            text = self._session.prompt(PROMPT, default=offered)
        finally:
            signal.signal(signal.SIGTERM, old)
        return unquoted(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


class _History(FileHistory):
    """A file of the user's; a full disk is no reason to stop."""

    def store_string(self, string: str) -> None:
        with suppress(OSError, UnicodeError):
            super().store_string(string)


def _history(say: Callable[[str], None]) -> History:
    path = user_state_path("spec-cli", appauthor=False) / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        say(f"history: {path}: {error.strerror}: only the lines of this conversation are remembered")
        return InMemoryHistory()
    return _History(str(path))


class _Completer(Completer):
    """Commands, and what may stand behind them."""

    def __init__(self, words: Words) -> None:
        self._words, self._paths = words, PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """As prompt_toolkit asks for them."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        offered = self._words(text)
        if offered is None:
            rest = text.partition(" ")[2]
            yield from self._paths.get_completions(Document(rest, len(rest)), complete_event)
            return
        word = re.split(r"[ ,]", text)[-1]
        for one in offered:
            if one.startswith(word):
                yield Completion(one, start_position=-len(word))


def _keys(multiline: bool) -> KeyBindings:
    keys, typing = KeyBindings(), has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=typing)
    def _enter(event: KeyPressEvent) -> None:
        buffer, text = event.current_buffer, event.current_buffer.text
        if is_open(text, multiline) and not (multiline and is_command(text)):
            buffer.cursor_position = len(text)
            if not (multiline or text.startswith(QUOTES)):
                buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if multiline and text.endswith("\\"):
            buffer.text = text[:-1]
        buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    def _alt_enter(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=typing)
    def _ctrl_c(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


@contextmanager
def silent() -> Iterator[None]:
    """Keys wait for the next turn: they are not shown amid an answer, and Ctrl-Z does not leave the screen torn."""
    try:
        import termios
    except ImportError:
        yield
        return
    try:
        old = termios.tcgetattr(0)
        new = termios.tcgetattr(0)
        new[3] &= ~termios.ECHO
        new[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(0, termios.TCSANOW, new)
    except termios.error:  # no terminal
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, old)


def keyboard(settings: Settings, words: Words, say: Callable[[str], None]) -> Keyboard:
    """What the standard streams and `--simple-io` ask for."""
    if not is_terminal(sys.stdin):
        return Lines()
    if settings.simple_io or is_dumb() or not (is_terminal(sys.stderr) or is_terminal(sys.stdout)):
        return SimpleTerminal(settings.multiline_input)
    return Terminal(settings, words, say)
