"""Several drafters as one: the first that has a guess wins (llama.cpp, common_speculative_draft)."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from spec_cli.contracts import Draft, Drafter, Live, Prompt
from spec_cli.stats import Calls


class Chain:
    """Drafters in priority order; without any it is the baseline, which guesses nothing.

    Each sequence has the drafters that its `types` name.
    """

    def __init__(self, drafters: Seq[Drafter]) -> None:
        self.name = ",".join(d.name for d in drafters) or "none"
        self.calls = {d.name: Calls() for d in drafters}
        self._drafters = drafters

    def begin(self, sequence: Live) -> None:
        """Tell its drafters of a new prompt."""
        for d in self._drafters:
            if d.name in sequence.types:
                with self.calls[d.name].begin:
                    d.begin(sequence)

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:
        """Let the drafters that have a memory read along."""
        for d in self._drafters:
            mine = [i for i, p in enumerate(prompts) if d.name in p.types]
            if mine:
                with self.calls[d.name].begin.going_on():
                    d.read([prompts[i] for i in mine], [ends[i] for i in mine])

    def draft(self, live: Seq[Live]) -> list[Draft]:
        """Ask in turn; a drafter is asked only for sequences that nobody guessed for yet."""
        drafts = [Draft() for _ in live]
        for d in self._drafters:
            asked = [i for i, s in enumerate(live) if s.limit > 0 and d.name in s.types and not drafts[i].tokens]
            if asked:
                with self.calls[d.name].draft:
                    found = d.draft([live[i] for i in asked])
                for i, draft in zip(asked, found, strict=True):
                    drafts[i] = draft
        return drafts

    def accepted(self, sequence: Live, n: int) -> None:
        """Tell its drafters, as each may keep state about the text."""
        for d in self._drafters:
            if d.name in sequence.types:
                with self.calls[d.name].accept:
                    d.accepted(sequence, n)
