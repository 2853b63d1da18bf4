"""The input line of a terminal (prompt_toolkit): history, completion, several lines."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

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

from spec_cli.cli.chat.keyboard import PROMPT, QUOTES, Words, is_command, is_open, unquoted
from spec_cli.cli.signals import EXIT, handled
from spec_cli.cli.terminal import is_terminal
from spec_cli.errors import Interrupted
from spec_cli.settings import Settings


class InputLine:
    """Drawn on standard error, where that is a terminal."""

    edits, piped = True, False

    def __init__(self, settings: Settings, words: Words, say: Callable[[str], None]) -> None:
        self._offered = ""
        self._session: PromptSession[str] = PromptSession(
            history=_history(say), completer=_Completer(words), complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False, multiline=True, prompt_continuation="  ", enable_suspend=True,
            editing_mode=EditingMode.VI if settings.vi else EditingMode.EMACS,
            key_bindings=self._keys(settings.multiline_input),
            output=create_output(sys.stderr if is_terminal(sys.stderr) else sys.stdout),
        )  # fmt: skip
        self._session.app.timeoutlen = 0.2  # after Escape, which begins Alt-Enter

    def read(self, offered: str = "") -> str:
        """The next turn. offered: a text to begin with. Raises Interrupted for SIGTERM and SIGHUP."""
        app, self._offered = self._session.app, offered

        def leave(number: int, frame: object) -> None:
            error = Interrupted("interrupted")
            error.exit_code = EXIT[signal.Signals(number)]

            def stop() -> None:
                with suppress(Exception):  # it stops already
                    app.exit(exception=KeyboardInterrupt if number == signal.SIGINT else error)

            if app.loop:
                app.loop.call_soon_threadsafe(stop)

        old = {number: signal.signal(number, leave) for number in handled()}
        try:
            text = self._session.prompt(PROMPT, default=offered, handle_sigint=False)
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text if text == offered else unquoted(text)

    def _keys(self, multiline: bool) -> KeyBindings:
        keys, typing = KeyBindings(), has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer, text = event.current_buffer, event.current_buffer.text
            unchanged = self._offered != "" and text == self._offered
            if is_open(text, multiline) and not (unchanged or (multiline and is_command(text))):
                buffer.cursor_position = len(text)
                if not (multiline or text.startswith(QUOTES)):
                    buffer.delete_before_cursor()
                buffer.insert_text("\n")
                return
            if multiline and text.endswith("\\") and not unchanged:
                buffer.text = text[:-1]
            buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=typing)
        def _alt_enter(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=typing)
        def _ctrl_c(event: KeyPressEvent) -> None:
            if event.current_buffer.text and not self._offered:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt)

        return keys


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
