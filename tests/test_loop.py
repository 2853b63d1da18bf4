"""The loop against a toy target: no model, no llama.cpp."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from spec_cli.accept import match
from spec_cli.contracts import Draft, Live, Pass, Prompt
from spec_cli.speculate import speculate
from spec_cli.tokens import Kind, common_prefix, tokens

N_VOCAB = 5


def distribution(text: Sequence[int]) -> np.ndarray:
    """The toy target: next-token probabilities that depend on the last two tokens."""
    rng = np.random.default_rng([7, *text[-2:]])
    weights = rng.random(N_VOCAB) ** 2 + 0.01
    return weights / weights.sum()


@dataclass
class ToyRow:
    logits: np.ndarray


class ToyRows(list):  # type: ignore[type-arg]
    cached = 0
    decoded = 0


class ToyTarget:
    n_vocab = N_VOCAB

    def forward(self, passes: Sequence[Pass]) -> list[ToyRows]:
        return [
            ToyRows(
                ToyRow(np.log(distribution(p.tokens[: len(p.tokens) - p.outputs + 1 + i]))) for i in range(p.outputs)
            )
            for p in passes
        ]


class Text:
    """Samples by inverting the cumulative distribution with its own random numbers."""

    def __init__(self, id: int, n: int, seed: int, limit: int = 3) -> None:
        self.id, self.tokens, self.limit, self.finish = id, tokens([0]), limit, None
        self.left, self.rng = n, np.random.default_rng(seed)

    finish: str | None

    def sample(self, row: ToyRow) -> int | None:
        if not np.isfinite(row.logits).any():
            return None
        p = np.exp(row.logits)
        return int(np.searchsorted(np.cumsum(p / p.sum()), self.rng.random() * (1 - 1e-12)))

    def push(self, token: int, kind: Kind) -> None:
        self.tokens.append(token)
        self.left -= 1
        if not self.left:
            self.finish = "length"

    def end(self, reason: str) -> None:
        self.finish = reason


class Random:
    name = "random"

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self, sequence: Live) -> None: ...
    def read(self, prompts: Sequence[Prompt], ends: Sequence[int]) -> None: ...
    def accepted(self, sequence: Live, n: int) -> None: ...

    def draft(self, live: Sequence[Live]) -> list[Draft]:
        return [Draft(tokens(self.rng.integers(-1, N_VOCAB + 1, size=self.rng.integers(0, 6)).tolist())) for _ in live]


class Nothing(Random):
    def draft(self, live: Sequence[Live]) -> list[Draft]:
        return [Draft() for _ in live]


def run(texts: list[Text], drafter: Random) -> list[array[int]]:
    target = ToyTarget()
    while live := [t for t in texts if t.finish is None]:
        speculate(target, drafter, live)
    return [t.tokens for t in texts]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 99)), min_size=1, max_size=4), st.integers(0, 99))
def test_random_guesses_never_change_a_sampled_text(wanted: list[tuple[int, int]], seed: int) -> None:
    """Several sequences of different lengths in one pass; ids out of range; drafts over the limit."""
    right = [run([Text(0, n, s)], Nothing(0))[0] for n, s in wanted]
    assert run([Text(i, n, s) for i, (n, s) in enumerate(wanted)], Random(seed)) == right


@pytest.mark.long
def test_the_first_token_of_a_guessed_pair_follows_the_targets_law() -> None:
    """20,000 one-guess rounds: the kept token's frequencies are the target's, whatever was guessed."""
    text, counts = Text(0, 10**9, 5), np.zeros(N_VOCAB)
    law = distribution([0])
    for guess in range(20000):
        text.tokens, text.finish = tokens([0]), None
        rows = ToyTarget().forward([Pass(0, tokens([0, guess % N_VOCAB]), 1, 2)])[0]
        kept, _ = match(text, Draft(tokens([guess % N_VOCAB])), rows)  # type: ignore[arg-type]
        counts[kept[0]] += 1
    assert np.abs(counts / 20000 - law).max() < 4 * math.sqrt(0.25 / 20000)


def test_a_row_without_a_finite_logit_ends_the_text() -> None:
    text = Text(0, 10, 1)
    rows = ToyRows([ToyRow(np.full(N_VOCAB, np.nan)), ToyRow(np.zeros(N_VOCAB))])
    kept, accepted = match(text, Draft(tokens([1])), rows)  # type: ignore[arg-type]
    assert (list(kept), accepted, text.finish) == ([], 0, "stop")


def test_a_stop_on_an_accepted_guess_counts_it_and_samples_nothing_after() -> None:
    text = Text(0, 2, 1)
    text.sample = lambda row: 3  # type: ignore[method-assign,assignment]
    rows = ToyRows([ToyRow(np.zeros(N_VOCAB))] * 5)
    kept, accepted = match(text, Draft(tokens([3, 3, 3, 3])), rows)  # type: ignore[arg-type]
    assert (list(kept), accepted, text.finish) == ([3, 3], 2, "length")


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    n = common_prefix(tokens(a), tokens(b))
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]
