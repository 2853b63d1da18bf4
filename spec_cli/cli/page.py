"""An answer of `generate` as it is made, and signs of life until it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from spec_cli.cli.signals import Received
from spec_cli.cli.status import Status
from spec_cli.cli.terminal import STYLES, Output, is_dumb, is_terminal
from spec_cli.scheduler import Job
from spec_cli.tokens import Kind


class Page:
    """Writes the text as it comes, coloured by who guessed it if `color`.

    A terminal at standard error shows how the prompt is read, and, where the answer goes elsewhere,
    how that goes on.
    """

    def __init__(self, output: Output, received: Received, *, color: bool, quiet: bool, shows_text: bool) -> None:
        self._output, self._received, self._color = output, received, color
        self._shows_text, self._style = shows_text, ""
        draws = is_terminal(sys.stderr) and not (quiet or is_dumb())
        self._status = Status(beside=True) if draws else None
        if self._status:
            self._status.begin()

    def mark(self, kind: Kind) -> None:
        """Who made the tokens of the next piece."""
        self._style = STYLES[kind] if self._color else ""

    def write(self, text: str) -> None:
        """A piece of the answer. Without `shows_text` it waits for the whole."""
        if self._shows_text:
            self._make_room()
            with self._received.writing(self._output.waits):
                self._output.write(text, self._style)

    def watch(self, job: Job) -> None:
        """After each pass."""
        if job.stats.predicted_n and self._output.on_screen and self._shows_text:
            self._make_room()
        elif self._status:
            self._status.draw(job)

    def end(self, text: Callable[[], str], *, cut: bool) -> None:
        """The answer is complete. text: what is written instead of its pieces; cut: its end is marked on a screen."""
        self.close()
        if not self._shows_text:
            self._output.write(text())
            return
        self._output.end_line(cut=cut)

    def close(self) -> None:
        """Take the status line away."""
        if self._status:
            self._status.end()

    def _make_room(self) -> None:
        if self._output.on_screen:
            self.close()
