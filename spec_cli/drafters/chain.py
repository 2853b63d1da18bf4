"""Several drafters as one: the first that has a guess wins (llama.cpp, common_speculative_draft)."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from spec_cli.contracts import Draft, Drafter, Live
from spec_cli.stats import Calls


class Chain:
    """Drafters in priority order; without any it is the baseline, which guesses nothing.

    n_max caps every draft; None leaves each drafter its own.
    """

    def __init__(self, drafters: Seq[Drafter], n_max: int | None = None) -> None:
        self.name = ",".join(d.name for d in drafters) or "none"
        longest = max((d.n_max for d in drafters), default=0)
        self.n_max = longest if n_max is None else min(n_max, longest)
        self.calls = {d.name: Calls() for d in drafters}
        self._drafters = drafters

    def begin(self, sequence: Live) -> None:
        """Tell every drafter of a new prompt."""
        for d in self._drafters:
            with self.calls[d.name].begin:
                d.begin(sequence)

    def draft(self, live: Seq[Live]) -> list[Draft]:
        """Ask in turn; a drafter is asked only for sequences that nobody guessed for yet."""
        drafts = [Draft() for _ in live]
        for d in self._drafters:
            asked = [i for i, s in enumerate(live) if s.limit > 0 and not drafts[i].tokens]
            if asked:
                with self.calls[d.name].draft:
                    found = d.draft([live[i] for i in asked])
                for i, draft in zip(asked, found, strict=True):
                    drafts[i] = draft
        return drafts

    def accepted(self, sequence: Live, n: int) -> None:
        """Tell every drafter, as each may keep state about the text."""
        for d in self._drafters:
            with self.calls[d.name].accept:
                d.accepted(sequence, n)
