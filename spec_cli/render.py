"""What a person sees of a run: a bar or lines while it goes on, a table at its end. On standard error only."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence as Seq
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from spec_cli.batch.run import Run
from spec_cli.batch.totals import Totals
from spec_cli.chat.talk import Talk
from spec_cli.report import acceptance_line, figure
from spec_cli.stats import Calls, Guesses, Passes, Stats

REFRESH = 0.1  # seconds
SHORTEST_BAR = 12  # columns
NARROW = 78  # columns


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
            room = self._bar.console.width - (SHORTEST_BAR if self._size else 1)
            self._bar.update(self._task, completed=run.bytes_done, description=self._line(run, room))
            self._bar.refresh()
        elif self._every and now - self._last >= self._every:
            self._last = now
            self._say(self._line(run))

    def _line(self, run: Run, room: int | None = None) -> str:
        """room: columns that there are; the parts that matter least give way."""
        t = run.totals
        left = self._size - run.bytes_done if self._size and run.bytes_done else -1
        parts = {
            "rows": f"{t.done} rows",
            "running": f"{run.running} running",
            "failed": f"{t.failed} failed" if t.failed else "",
            "speed": f"{figure(t.per_second)} tokens/s" if t.per_second else "",
            "rate": f"acceptance {figure(rate)}" if (rate := t.stats.total.acceptance_rate) is not None else "",
            "left": f"{duration((monotonic() - self._start) * left / run.bytes_done)} left" if left >= 0 else "",
        }
        for name in ("rate", "running", "speed", "failed", "left"):
            if room is None or len(_listed(parts)) <= room:
                break
            del parts[name]
        return _listed(parts)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _listed(parts: Mapping[str, str]) -> str:
    return ", ".join(part for part in parts.values() if part)


def summary(t: Totals, passes: Passes, calls: Mapping[str, Calls], width: int) -> list[str]:
    """The lines at the end of a run; the table has at most `width` columns."""
    lines, s = [], t.stats
    if s.total.drafted:
        lines.append(acceptance_line(s.total))
    elif t.answered:
        lines.append("speculation: nothing was drafted")
    rates = f" ({figure(t.per_second)} tokens per second)" if t.per_second else ""
    each = f", {figure(passes.rows / passes.n)} rows a pass" if passes.n else ""
    rows = ", ".join(
        f"{n} {what}" for n, what in ((t.answered, "answered"), (t.failed, "failed"), (t.skipped, "skipped")) if n
    )
    lines.append(f"{rows or 'no rows'} in {figure(t.seconds)} s: {s.predicted_n} tokens{rates}{each}")
    if t.answered:
        lines.append(f"prompts: {s.prompt_n} tokens decoded, {s.cache_n} taken over from prompts that begin alike")
    return lines + (table(t, calls, width) if s.total.drafted else [])


def table(t: Totals, calls: Mapping[str, Calls], width: int) -> list[str]:
    """A line for each drafter that guessed; a column, where lines have no room."""
    rows = {
        name: (*_guesses(g), figure(calls[name].begin.seconds + calls[name].draft.seconds))
        for name, g in t.stats.by_drafter.items()
    }
    labels = (*_GUESSES, "seconds")
    if width < NARROW:
        grid = _grid("", *rows)
        for i, label in enumerate(labels):
            grid.add_row(label, *(row[i] for row in rows.values()))
    else:
        grid = _grid("drafter", *labels)
        for name, row in rows.items():
            grid.add_row(name, *row)
    return _lines(grid, width)


def conversation_table(talk: Talk, width: int) -> list[str]:
    """The last answer beside all of them; then each drafter's part."""
    assert talk.last is not None
    last, every = talk.last.answer.stats, talk.stats
    grid = _grid("", "last", "all")
    grid.add_row("seed", str(talk.last.answer.seed), "")
    for label, of in _NUMBERS:
        grid.add_row(label, _number(of(last)), _number(of(every)))
    if len(every.by_drafter) > 1:
        grid.add_row("acceptance", *(figure(s.total.acceptance_rate) for s in (last, every)))
    for name, guesses in every.by_drafter.items():
        columns = _guesses(last.by_drafter.get(name, Guesses())), _guesses(guesses)
        grid.add_section()
        grid.add_row(name)
        for label, *values in zip(_GUESSES, *columns, strict=True):
            grid.add_row(f"  {label}", *values)
        grid.add_row("  ms", *(figure(spent[name] * 1e3) for spent in (talk.last.drafter_s, talk.drafter_s)))
    return _lines(grid, width)


def _number(value: float | None) -> str:
    return str(value) if isinstance(value, int) else figure(value)


def _per_token(part: Callable[[Stats], float]) -> Callable[[Stats], float | None]:
    """Milliseconds a token, over n - 1."""

    def of(s: Stats) -> float | None:
        after = s.predicted_n - s.answers
        return part(s) * 1e3 / after if after > 0 else None

    return of


_NUMBERS: tuple[tuple[str, Callable[[Stats], float | None]], ...] = (
    ("answers", lambda s: s.answers),
    ("prompt, decoded", lambda s: s.prompt_n),
    ("prompt, in memory", lambda s: s.cache_n),
    ("prompt tokens a second", lambda s: s.prompt_per_second),
    ("tokens of answer", lambda s: s.predicted_n),
    ("tokens a second", lambda s: s.predicted_per_second),
    ("tokens a round", lambda s: s.tokens_per_round),
    ("ms a token", _per_token(lambda s: s.predicted_s)),
    ("  guessing", _per_token(lambda s: s.draft_s)),
    ("  target's passes", _per_token(lambda s: s.target_s)),
    ("  sampling and text", _per_token(lambda s: s.other_s)),
)


def command_table(rows: Seq[tuple[str, str]], width: int) -> list[str]:
    """What there is on the left, what it does on the right, or below where there is no room."""
    if width < NARROW:
        indented = [textwrap.wrap(what, width - 1, initial_indent="  ", subsequent_indent="  ") for _, what in rows]
        return [line for (name, _), what in zip(rows, indented, strict=True) for line in (name, *what)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        grid.add_row(*map(Text, row))
    return _lines(grid, width)


_GUESSES = ("drafts", "drafted", "accepted", "acceptance", "tokens a draft")


def _guesses(g: Guesses) -> tuple[str, ...]:
    length = figure(g.mean_length if g.drafts else None)
    return str(g.drafts), str(g.drafted), str(g.accepted), figure(g.acceptance_rate), length


def _grid(first: str, *names: str) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(first)
    for name in names:
        grid.add_column(name, justify="right")
    return grid


def _lines(grid: Table, width: int) -> list[str]:
    page = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    page.print(grid)
    text = page.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]
