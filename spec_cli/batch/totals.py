"""The numbers of a whole run, counted once, from the rows' own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from spec_cli.report import by_drafter_json, counters, milliseconds
from spec_cli.stats import Calls, Passes, Stats


@dataclass
class Totals:
    """Of all rows of this run. Rates are None where nothing was measured."""

    seconds: float = 0.0
    """From the first row's start to the last one's end; loading is left out."""
    answered: int = 0
    failed: int = 0
    skipped: int = 0
    """Rows that an earlier run had answered."""
    finish_reasons: Counter[str] = field(default_factory=Counter)
    stats: Stats = field(default_factory=lambda: Stats(answers=0))
    """The answers' sums; seconds are those of passes that rows shared."""

    def add(self, finish_reason: str, s: Stats) -> None:
        """A row that was answered."""
        self.answered += 1
        self.finish_reasons[finish_reason] += 1
        self.stats.merge(s)

    @property
    def done(self) -> int:
        """Rows that need no more work."""
        return self.answered + self.failed + self.skipped

    @property
    def per_second(self) -> float | None:
        """Tokens sampled a second, by all rows together, prompts' time included."""
        return self.stats.predicted_n / self.seconds if self.stats.predicted_n and self.seconds else None

    def as_json(self, passes: Passes, calls: Mapping[str, Calls], n_rows: int) -> dict[str, object]:
        """For --stats. Times of passes and drafters are counted once, however many rows share them."""
        s, rate, each = self.stats, self.per_second, passes.rows / passes.n if passes.n else None
        return {
            "rows": {"answered": self.answered, "failed": self.failed, "skipped": self.skipped},
            "seconds": round(self.seconds, 3),
            "prompt_n": s.prompt_n,
            "cache_n": s.cache_n,
            "predicted_n": s.predicted_n,
            "predicted_per_second": None if rate is None else round(rate, 3),
            "finish_reasons": dict(self.finish_reasons),
            "parallel": n_rows,
            "passes": passes.n,
            "rows_per_pass": None if each is None else round(each, 3),
            "draft_ms": milliseconds(passes.draft_s),
            "target_ms": milliseconds(passes.target_s),
            "speculative": {**counters(s.total), "by_drafter": by_drafter_json(s.by_drafter)},
            "drafters_ms": {name: milliseconds(c.begin.seconds + c.draft.seconds) for name, c in calls.items()},
        }
