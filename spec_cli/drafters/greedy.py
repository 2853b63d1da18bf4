"""Guessing with a model: its likeliest token, a token at a time, for several texts in shared passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np

from spec_cli.contracts import Draft, Live, Prompt, Row
from spec_cli.tokens import tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a model guesses. n_max: the longest draft where a sequence names none; shorter than n_min is none."""

    n_max: int
    n_min: int
    p_min: float


@dataclass(slots=True)
class Guess:
    """A text that is being guessed on, as the guessing model reads it: `sure` of its tokens are no guesses."""

    id: int
    text: array[int]
    sure: int
    most: int

    @property
    def guesses(self) -> array[int]:
        """The guesses so far."""
        return self.text[self.sure :]

    @property
    def made(self) -> int:
        """How many they are."""
        return len(self.text) - self.sure


class GreedyDrafter(ABC):
    """What draft models and heads have in common (llama.cpp, common/speculative.cpp: the three `draft` functions).

    n_ctx: positions that the guessing model has; n_vocab, target_vocab: ids that only one of the two
    vocabularies has are neither guessed nor shown to the guessing model.
    """

    name: str

    def __init__(
        self, *, n_ctx: int, n_vocab: int, target_vocab: int, limits: Limits, say: Callable[[str], None]
    ) -> None:
        self._n_ctx, self._say = n_ctx, say
        self._shared = min(n_vocab, target_vocab)
        self._unknown_ids = n_vocab < target_vocab
        self._limits = limits

    def begin(self, sequence: Live) -> None:  # noqa: B027
        """Nothing to forget: the next pass takes back what was another text."""

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:  # noqa: B027
        """Nothing to read unless a drafter says so."""

    def draft(self, live: Seq[Live]) -> list[Draft]:
        """Up to n_max guesses each; the sequences that still guess share a pass."""
        all_of_them = [self._start(s) for s in live]
        going_on = [g for g in all_of_them if g.most > 0]
        try:
            step = 0
            while going_on:
                rows = self._pass(step, going_on)
                going_on = [g for g, row in zip(going_on, rows, strict=True) if self._take(g, row.logits)]
                step += 1
        finally:
            self._stop([g for g in all_of_them if g.most > 0])
        return [Draft(g.guesses, self.name) if g.made >= self._least(g) else Draft() for g in all_of_them]

    def _least(self, g: Guess) -> int:
        """Guesses below which there is no draft."""
        return max(1, self._limits.n_min)

    @abstractmethod
    def _pass(self, step: int, guesses: Seq[Guess]) -> Seq[Row]:
        """Read what is new of each text; the row of its last token."""

    def _stop(self, guesses: Seq[Guess]) -> None:  # noqa: B027
        """These were guessed on."""

    def accepted(self, sequence: Live, n: int) -> None:  # noqa: B027
        """Nothing to take back: the next pass does."""

    def _start(self, s: Live) -> Guess:
        text = self._readable(s.tokens)
        most = min(s.limit, self._limits.n_max if s.n_max is None else s.n_max)
        room = self._n_ctx - len(text) + 1  # the last guess is never decoded
        if room <= 0 < most:
            self._say(f"the text has outgrown the draft context ({self._n_ctx} tokens): drafting stops")
        return Guess(s.id, text, len(text), min(most, room))

    def _take(self, g: Guess, logits: Any) -> bool:
        """Append the likeliest token unless it is less likely than p_min. Whether to go on."""
        token, p_min = 0, self._limits.p_min
        shared = logits[: self._shared]
        if p_min:
            token, probability = top_probability(shared)
            if probability < p_min:
                return False
        else:
            token = int(shared.argmax())
        g.text.append(token)
        return g.made < g.most

    def _readable(self, text: array[int]) -> array[int]:
        """A copy of the text; ids that the guessing model does not know are replaced by its last shared one."""
        if not self._unknown_ids:
            return text[:]
        return tokens(np.minimum(np.frombuffer(text, np.int32), self._shared - 1).tobytes())


def top_probability(logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]], k: int = 10) -> tuple[int, float]:
    """The most probable id and its softmax probability among the `k` highest logits (float32).

    common/speculative.cpp: top_k(10), then dist; ties as numpy sorts them.
    """
    best = int(logits.argmax())
    near = logits[np.flatnonzero(logits > logits[best] - 16)]  # what is further down rounds to nothing
    if not near.size:  # no finite maximum: a guess at nothing
        return best, 0.0
    top = np.sort(near)[::-1][:k]
    return best, float(1 / np.exp(top - top[0]).sum(dtype=np.float32))
