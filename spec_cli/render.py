"""What a person sees of a run: a bar or lines while it goes on, a table at its end. On standard error only."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from spec_cli.batch.run import Run
from spec_cli.batch.totals import Totals
from spec_cli.stats import Calls, Passes, acceptance_line

REFRESH = 0.1  # seconds


def duration(seconds: float) -> str:
    """h:mm:ss, or m:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Watch:
    """Tells how a run goes on. size: bytes of input, None where nobody knows.

    every: seconds between lines; 0 means a bar if standard error is a terminal, else nothing.
    """

    def __init__(self, say: Callable[[str], None], size: int | None, every: float) -> None:
        self._say, self._size, self._every = say, size, every
        self._start = self._last = monotonic()
        self._bar: Progress | None = None

    def start(self) -> None:
        """The rows begin."""
        self._start = self._last = monotonic()
        console = Console(stderr=True)
        if not self._every and console.is_terminal and not console.is_dumb_terminal:
            bar = [BarColumn(bar_width=None)] if self._size else []
            self._bar = Progress(
                *bar, TextColumn("{task.description}", markup=False), console=console, auto_refresh=False,
                transient=True, expand=bool(self._size), redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=self._size)
            self._bar.start()

    def say(self, line: str) -> None:
        """One line, above the bar."""
        if self._bar is None:
            self._say(line)
            return
        self._bar.stop()
        self._say(line)
        self._bar.start()

    def update(self, run: Run) -> None:
        """Show where the run is, now and then."""
        now = monotonic()
        if self._bar is not None and now - self._last >= REFRESH:
            self._last = now
            self._bar.update(self._task, completed=run.bytes_done, description=self._line(run))
            self._bar.refresh()
        elif self._every and now - self._last >= self._every:
            self._last = now
            self._say(self._line(run))

    def _line(self, run: Run) -> str:
        t = run.totals
        parts = [f"{t.done} rows", f"{run.running} running"]
        parts += [f"{t.failed} failed"] if t.failed else []
        parts += [f"{t.per_second:.1f} tokens/s"] if t.per_second else []
        parts += [f"acceptance {t.total.acceptance_rate:.3f}"] if t.total.acceptance_rate is not None else []
        if self._size and run.bytes_done and (left := self._size - run.bytes_done) >= 0:
            parts.append(f"{duration((monotonic() - self._start) * left / run.bytes_done)} left")
        return ", ".join(parts)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def summary(t: Totals, passes: Passes, calls: Mapping[str, Calls]) -> list[str]:
    """The lines at the end of a run."""
    lines = []
    if t.total.drafted:
        lines.append(acceptance_line(t.total))
    elif t.answered:
        lines.append("speculation: nothing was drafted")
    rates = f" ({t.per_second:.2f} tokens per second)" if t.per_second else ""
    each = f", {passes.rows / passes.n:.2f} rows a pass" if passes.n else ""
    rows = ", ".join(
        f"{n} {what}" for n, what in ((t.answered, "answered"), (t.failed, "failed"), (t.skipped, "skipped")) if n
    )
    lines.append(f"{rows or 'no rows'} in {t.seconds:.2f} s: {t.predicted_n} tokens{rates}{each}")
    if t.answered:
        lines.append(f"prompts: {t.prompt_n} tokens decoded, {t.cache_n} taken over from prompts that begin alike")
    return lines + (table(t, calls) if t.total.drafted else [])


def table(t: Totals, calls: Mapping[str, Calls]) -> list[str]:
    """A line for each drafter that guessed."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("drafter")
    for name in ("drafts", "drafted", "accepted", "rate", "mean len", "seconds"):
        grid.add_column(name, justify="right")
    for name, g in t.by_drafter.items():
        spent = calls[name].begin.seconds + calls[name].draft.seconds
        rate = "" if g.acceptance_rate is None else f"{g.acceptance_rate:.5f}"
        row = (name, str(g.drafts), str(g.drafted), str(g.accepted), rate, f"{g.mean_length:.2f}", f"{spent:.2f}")
        grid.add_row(*row)
    page = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False, legacy_windows=False)
    page.print(grid)
    text = page.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]
