"""What a terminal shows beside the text: a model is loaded, a prompt is read, how an answer goes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic

from prompt_toolkit.utils import get_cwidth

from spec_cli.cli.keys import silent
from spec_cli.cli.terminal import control, is_dumb, is_terminal, on_one_screen, size, styled
from spec_cli.report import figure
from spec_cli.scheduler import Job

REFRESH = 0.1  # seconds
SOON = 1.0  # seconds that nobody wonders about
SAVE, RESTORE, WHOLE_SCREEN = "\x1b7", "\x1b8", "\x1b[r"  # DECSC, DECRC, DECSTBM


def status(job: Job, width: int) -> str:
    """How an answer goes on, in at most `width` columns: the last parts give way."""
    s, t = job.stats, job.s
    if not s.predicted_n:
        parts = [f"reading the prompt: {s.prompt_n} of {t.n_prompt} tokens"]
    else:
        rate, each, speed = s.total.acceptance_rate, s.tokens_per_round, s.predicted_per_second
        parts = [f"{s.predicted_n} tokens"]
        parts += [] if speed is None else [f"{figure(speed)} t/s"]
        parts += [] if rate is None else [f"acceptance {figure(rate)}"]
        parts += [] if each is None else [f"{figure(each)} tokens a round"]
    while len(parts) > 1 and len("  ".join(parts)) >= width:
        parts.pop()
    return "  ".join(parts)[: width - 1]


class Status:
    """Keeps the last line of the screen for itself while text streams above it, as apt's progress bar does.

    The terminal scrolls only the lines above, so the text is the terminal's own: wrapped by it, and in
    its history. To draw, the cursor leaves and comes back; terminals (tmux is one) then forget that a
    full line is about to wrap, and the next character would overwrite its last one. So nothing is drawn
    where the cursor may be there. beside: standard output is no terminal, and the line has its own.
    """

    def __init__(self, beside: bool) -> None:
        self.beside = beside
        self._size = os.terminal_size((0, 0))
        self._ready = False
        self._line = ""  # the text since the last line break
        self._drawn = 0.0
        self._on, self._off = ("\x1b[2m", "\x1b[0m") if styled(sys.stderr) else ("", "")

    def begin(self) -> None:
        """The cursor is at the beginning of a line: make room below it."""
        self._line, self._size = "", size()
        self._ready = self.beside or (self._size.lines > 3 and self._size.columns > 1)
        if self._ready and not self.beside:
            margins = f"\x1b[1;{self._size.lines - 1}r"
            control(f"\n\x1b[A\x1b[J{SAVE}{margins}{RESTORE}")

    def wrote(self, text: str) -> None:
        """The terminal got this text."""
        self._line = (self._line + text).rpartition("\n")[2]
        if not self._line and not self._ready:
            self.begin()

    def draw(self, job: Job) -> None:
        """Show where the answer is, now and then."""
        if monotonic() - self._drawn < REFRESH:
            return
        if self._ready and size() != self._size:
            self._resized()
        if self._ready and _column(self._line, self._size.columns) is not None:
            self._drawn = monotonic()
            text = f"{self._on}{status(job, self._size.columns)}{self._off}"
            control(f"\r{text}\x1b[K" if self.beside else f"{SAVE}\x1b[{self._size.lines};1H{text}\x1b[K{RESTORE}")

    def _resized(self) -> None:
        """Let go of the old last line, wherever it is now. Only at a line break is the cursor's place certain again."""
        self._ready, before, self._size = False, self._size, size()
        certain = all(_column(self._line, at.columns) is not None for at in (before, self._size))
        control(f"{SAVE}{WHOLE_SCREEN}{RESTORE}" + ("\x1b[J" if certain else ""))

    def end(self) -> None:
        """Take the line away and give the whole screen back. The cursor is at the beginning of a line."""
        if self._ready:
            self._ready = False
            control("\r\x1b[K" if self.beside else f"{SAVE}{WHOLE_SCREEN}{RESTORE}\x1b[J")


@contextmanager
def loading(tell: Callable[[str], None], draws: bool) -> Iterator[Callable[[str], None]]:
    """A line while models are loaded, where that takes a while. Gives what is to be told instead of `tell`."""
    if not draws or not is_terminal(sys.stderr) or is_dumb():
        yield tell
        return
    lock, shown = threading.Lock(), False

    def show(on: bool) -> None:
        nonlocal shown
        if on != shown:
            control("loading the model" if on else "\r\x1b[K")
        shown = on

    def soon() -> None:
        with lock:
            show(not timer.finished.is_set())

    def say(line: str) -> None:
        with lock:
            before = shown
            show(False)
            tell(line)
            show(before)

    timer = threading.Timer(SOON, soon)
    timer.daemon = True
    timer.start()
    try:
        with silent(stops=False) if on_one_screen() else nullcontext():
            yield say
    finally:
        with lock:
            timer.cancel()
            show(False)


def _column(line: str, width: int) -> int | None:
    """Where the cursor is after this text; None at the edge, or where terminals may disagree."""
    column = 0
    for c in line:
        n = get_cwidth(c)
        if c == "\t":
            column = min(column // 8 * 8 + 8, width - 1)
            continue
        if n not in (1, 2) or 0x2190 <= ord(c) < 0x2E80 or ord(c) >= 0x1F000:  # combining, symbols, emoji
            return None
        column = n if column + n > width else column + n
    return column if column < width else None
