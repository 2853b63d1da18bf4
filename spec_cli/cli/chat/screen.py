"""Answers as they are made: the text on standard output, what was thought on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence as Seq
from contextlib import suppress
from typing import TYPE_CHECKING

from spec_cli.cli.signals import Received
from spec_cli.cli.terminal import STYLES, Output, columns_of, control, is_dumb, is_terminal, shown, styled
from spec_cli.cli.wrap import Piece, Wrap
from spec_cli.errors import Interrupted
from spec_cli.scheduler import Job
from spec_cli.settings import Settings
from spec_cli.tokens import Kind

if TYPE_CHECKING:
    from spec_cli.cli.chat.markdown import MarkdownView
    from spec_cli.cli.status import Status


class Screen:
    """Shows one answer after the other. color: whether accepted guesses and corrections have colours.

    A terminal gets a status line, and rendered Markdown if `--markdown` asks for it.
    """

    def __init__(self, settings: Settings, color: bool) -> None:
        self.color = color
        self._output = Output(None, wraps=not settings.simple_io)
        self._thoughts = not (settings.hide_thinking or settings.quiet)
        out, plain = is_terminal(sys.stdout), settings.simple_io or is_dumb()
        draws = is_terminal(sys.stderr) and not (plain or settings.quiet)
        self._status: Status | None = None
        self._markdown: MarkdownView | None = None
        if settings.markdown and out and not plain:
            from spec_cli.cli.chat.markdown import MarkdownView

            self._markdown = MarkdownView()
        elif draws:
            from spec_cli.cli.status import Status

            self._status = Status(beside=not out)
        self._dim, self._plain = ("\x1b[2m", "\x1b[0m") if styled(sys.stderr) else ("", "")
        self._wraps_thoughts = is_terminal(sys.stderr) and not plain
        self._thought = self._no_thought()
        self._style = ""
        self._thinks = False
        self._received = Received()

    @property
    def renders(self) -> bool:
        """Whether answers are shown as Markdown."""
        return self._markdown is not None

    def begin(self, received: Received) -> None:
        """An answer comes. The cursor is at the beginning of a line."""
        self._received = received
        self._output.begin()
        if self._status:
            self._status.begin()
        self._thinks = False

    def mark(self, kind: Kind) -> None:
        """Who made the tokens of the next piece."""
        self._style = STYLES[kind] if self.color else ""

    def write(self, text: str, thought: bool) -> None:
        """A piece of the answer, or of what the model thinks."""
        with self._received.writing(self._output.waits):
            if thought != self._thinks:
                self._turn(thought)
            if not thought:
                self._answer(text)
            elif self._thoughts:
                self._think(self._thought.feed(shown(text)))

    def _answer(self, text: str) -> None:
        if self._markdown:
            self._markdown.write(text)
        else:
            self._wrote_answer(self._output.write(text, self._style))

    def _wrote_answer(self, text: str) -> None:
        if self._status and not self._status.beside:
            self._status.wrote(text)

    def _think(self, pieces: Seq[Piece]) -> None:
        text = "".join(piece for piece, _ in pieces)
        control(f"{self._dim}{text}{self._plain}" if text else "")
        self._wrote(text)

    def _no_thought(self) -> Wrap:
        return Wrap(lambda: columns_of(sys.stderr) if self._wraps_thoughts else None)

    def _wrote(self, text: str) -> None:
        if self._status:
            self._status.wrote(text)

    def watch(self, job: Job) -> None:
        """After each pass."""
        if self._markdown:
            if not self._thinks:
                self._markdown.watch(job)
        elif self._status:
            self._status.draw(job)

    def end(self, *, cut: bool = False) -> None:
        """The answer is complete, or was interrupted. cut: it might have gone on."""
        try:
            if self._thinks:
                self._turn(False)
            if self._markdown:
                self._markdown.end()
            else:
                with self._received.writing(self._output.waits), suppress(Interrupted):
                    self._output.end_line(cut=cut)
        finally:
            if self._status:
                self._status.end()

    def _turn(self, thought: bool) -> None:
        """From the answer to what is thought, or back: llama-cli's words for it."""
        self._thinks = thought
        if thought and self._markdown:  # it is drawn where the thoughts go
            self._markdown.end()
        if not self._thoughts:
            return
        if thought:
            self._wrote_answer(self._output.flush())
        else:
            self._think(self._thought.flush())
            self._output.begin()
        self._thought = self._no_thought()
        if self._status and self._status.beside:  # what is thought goes where the line was
            self._status.end()
        words = "[Start thinking]\n" if thought else "\n[End thinking]\n\n"
        control(words)
        self._wrote(words)
