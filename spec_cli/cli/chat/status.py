"""The line at the bottom of the terminal while an answer is made."""

from __future__ import annotations

import os
import sys
from time import monotonic

from spec_cli.cli.terminal import control, styled
from spec_cli.scheduler import Job

REFRESH = 0.1  # seconds
SAVE, RESTORE, WHOLE_SCREEN = "\x1b7", "\x1b8", "\x1b[r"  # DECSC, DECRC (with the pending wrap), DECSTBM


def status(job: Job, width: int) -> str:
    """How an answer goes on, in at most `width` columns: the last parts give way."""
    s, t = job.stats, job.s
    if not s.predicted_n:
        parts = [f"reading the prompt: {s.prompt_n} of {t.n_prompt} tokens"]
    else:
        rate, each, speed = s.total.acceptance_rate, s.tokens_per_round, s.predicted_per_second
        parts = [f"{s.predicted_n} tokens"]
        parts += [] if speed is None else [f"{speed:.1f} t/s"]
        parts += [] if rate is None else [f"acceptance {rate:.3f}"]
        parts += [] if each is None else [f"{each:.2f} a round"]
        parts += ["no drafts"] if not t.types else [] if t.n_max is None else [f"n_max {t.n_max}"]
    while len(parts) > 1 and len("  ".join(parts)) >= width:
        parts.pop()
    return "  ".join(parts)[: width - 1]


class Status:
    """Keeps the last line of the screen for itself while text streams above it, as apt's progress bar does.

    The terminal scrolls only the lines above, so the text is the terminal's own: wrapped by it, and in
    its history. Where the size changes, the line waits for the text's next line break: only there is
    it certain where the cursor is. beside: standard output is no terminal, and the line has its own.
    """

    def __init__(self, beside: bool) -> None:
        self._beside = beside
        self._size = os.terminal_size((0, 0))
        self._ready = False
        self._drawn = 0.0
        self._on, self._off = ("\x1b[2m", "\x1b[0m") if styled(sys.stderr) else ("", "")

    def begin(self) -> None:
        """The cursor is at the beginning of a line: make room below it."""
        self._size = _size()
        self._ready = self._beside or (self._size.lines > 3 and self._size.columns > 1)
        if self._ready and not self._beside:
            margins = f"\x1b[1;{self._size.lines - 1}r"
            control(f"\n\x1b[A{SAVE}{margins}{RESTORE}")

    def line_break(self) -> None:
        """The text has begun a new line."""
        if not self._ready:
            self.begin()

    def draw(self, job: Job) -> None:
        """Show where the answer is, now and then."""
        now = monotonic()
        if now - self._drawn < REFRESH:
            return
        self._drawn = now
        if self._ready and _size() != self._size:
            self.end()
        if not self._ready:
            return
        text = f"{self._on}{status(job, self._size.columns)}{self._off}"
        control(f"\r{text}\x1b[K" if self._beside else f"{SAVE}\x1b[{self._size.lines};1H{text}\x1b[K{RESTORE}")

    def end(self) -> None:
        """Take the line away and give the whole screen back."""
        if not self._ready:
            return
        self._ready = False
        last = _size().lines
        control("\r\x1b[K" if self._beside else f"{SAVE}{WHOLE_SCREEN}\x1b[{last};1H\x1b[2K{RESTORE}")


def _size() -> os.terminal_size:
    try:
        return os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return os.terminal_size((80, 24))
