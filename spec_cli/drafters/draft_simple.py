"""A small model of the same vocabulary guesses greedily, a token at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence as Seq
from typing import Any, Protocol

import numpy as np

from spec_cli.contracts import Draft, Live, Pass, Prompt, Target
from spec_cli.tokens import tokens


class DraftModel(Target, Protocol):
    """A model to guess with, of `n_ctx` positions for each text."""

    n_ctx: int


class DraftSimple:
    """llama.cpp's draft-simple (common/speculative.cpp, common_speculative_impl_draft_simple).

    n_max: the longest draft where a sequence names none.
    Ids that only one of the two vocabularies has are neither guessed nor shown to the draft model.
    """

    name = "draft-simple"

    def __init__(
        self, model: DraftModel, target_vocab: int, *, n_max: int, n_min: int, p_min: float, say: Callable[[str], None]
    ) -> None:
        self._model, self._n_ctx, self._say = model, model.n_ctx, say
        self._shared = min(model.n_vocab, target_vocab)
        self._unknown_ids = model.n_vocab < target_vocab
        self.n_max, self._n_min, self._p_min = n_max, n_min, p_min

    def begin(self, sequence: Live) -> None:
        """Nothing to forget: the next pass takes back what was another text."""

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:
        """Read the prompts along with the target, so that drafting starts with them."""
        passes = [
            Pass(p.id, self._readable(p.tokens[:end]), end, 0)
            for p, end in zip(prompts, ends, strict=True)
            if len(p.tokens) <= self._n_ctx
        ]
        if passes:
            self._model.forward(passes)

    def draft(self, live: Seq[Live]) -> list[Draft]:
        """Up to n_max guesses each; the sequences that still guess share a pass."""
        texts = [self._readable(s.tokens) for s in live]
        limits = [min(self._most(s), self._room(s)) for s in live]
        sure = [len(text) for text in texts]
        guessing = [i for i, limit in enumerate(limits) if limit > 0]
        while guessing:
            passes = [Pass(live[i].id, texts[i], sure[i], 1) for i in guessing]
            still = []
            for i, rows in zip(guessing, self._model.forward(passes), strict=True):
                token = self._pick(rows[0].logits)
                if token is None:
                    continue
                texts[i].append(token)
                if len(texts[i]) - sure[i] < limits[i]:
                    still.append(i)
            guessing = still
        guesses = [text[n:] for text, n in zip(texts, sure, strict=True)]
        return [Draft(g, self.name) if len(g) >= max(1, self._n_min) else Draft() for g in guesses]

    def accepted(self, sequence: Live, n: int) -> None:
        """The draft model's own guesses went wrong with the target's."""
        self._model.settle(sequence.id, self._readable(sequence.tokens))

    def _pick(self, logits: Any) -> int | None:
        """The likeliest token, None when it is less likely than p_min."""
        shared = logits[: self._shared]
        if not self._p_min:
            return int(shared.argmax())
        token, probability = top_probability(shared)
        return token if probability >= self._p_min else None

    def _most(self, sequence: Live) -> int:
        """Guesses that are wanted."""
        return min(sequence.limit, self.n_max if sequence.n_max is None else sequence.n_max)

    def _room(self, sequence: Live) -> int:
        """Guesses that the draft context has room for: the last one is never decoded."""
        room = self._n_ctx - len(sequence.tokens) + 1
        if room <= 0 < self._most(sequence):
            self._say(f"the text has outgrown the draft context ({self._n_ctx} tokens): drafting stops")
        return room

    def _readable(self, text: array[int]) -> array[int]:
        """A copy of the text; ids that the draft model does not know are replaced by its last shared one."""
        if not self._unknown_ids:
            return text[:]
        return tokens(np.minimum(np.frombuffer(text, np.int32), self._shared - 1).tobytes())


def top_probability(logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]], k: int = 10) -> tuple[int, float]:
    """The most probable id and its softmax probability among the `k` highest logits (float32).

    common/speculative.cpp, draft-simple: top_k(10), then dist; ties as numpy sorts them.
    """
    best = int(logits.argmax())
    near = logits[np.flatnonzero(logits > logits[best] - 16)]  # what is further down rounds to nothing
    top = np.sort(near)[::-1][:k]
    return best, float(1 / np.exp(top - top[0]).sum(dtype=np.float32))
