"""A small model of the same vocabulary guesses greedily, a token at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence as Seq
from typing import Protocol

from spec_cli.contracts import Live, Pass, Prompt, Row, Target
from spec_cli.drafters.greedy import GreedyDrafter, Guess, Limits


class DraftModel(Target, Protocol):
    """A model to guess with, of `n_ctx` positions for each text (llama/session.py)."""

    n_ctx: int

    def step(self, news: Seq[tuple[int, int]]) -> Seq[Row]: ...
    def guard(self, sequences: Seq[int]) -> None: ...


class DraftSimple(GreedyDrafter):
    """llama.cpp's draft-simple (common/speculative.cpp, common_speculative_impl_draft_simple)."""

    name = "draft-simple"

    def __init__(self, model: DraftModel, target_vocab: int, limits: Limits, say: Callable[[str], None]) -> None:
        super().__init__(n_ctx=model.n_ctx, n_vocab=model.n_vocab, target_vocab=target_vocab, limits=limits, say=say)
        self._model = model

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:
        """Read the prompts along with the target, so that drafting starts with them."""
        passes = [
            Pass(p.id, self._readable(p.tokens[:end]), end, 0)
            for p, end in zip(prompts, ends, strict=True)
            if len(p.tokens) <= self._n_ctx
        ]
        if passes:
            self._model.forward(passes)

    def accepted(self, sequence: Live, n: int) -> None:
        """The draft model's own guesses went wrong with the target's."""
        self._model.settle(sequence.id, self._readable(sequence.tokens))

    def _pass(self, step: int, guesses: Seq[Guess]) -> Seq[Row]:
        if step:
            return self._model.step([(g.id, g.text[-1]) for g in guesses])
        rows = self._model.forward([Pass(g.id, g.text[:], g.sure, 1) for g in guesses])
        self._model.guard([g.id for g in guesses])
        return [r[0] for r in rows]
