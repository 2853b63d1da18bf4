"""The target's own choice at a row: llama.cpp's sampler chain, in its order, with its defaults."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from spec_cli.llama.log import C
from spec_cli.llama.rows import LogitRow
from spec_cli.llama.vocab import Vocab

COLDEST = 1e-6  # a lower temperature is greedy: dividing logits by it would overflow


class Sampling(Protocol):
    """The sampling settings, named as the flags are."""

    @property
    def temp(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def repeat_last_n(self) -> int: ...
    @property
    def repeat_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One sampler of the chain: when it does anything, how C makes it, whether it may move the argmax."""

    name: str
    active: Callable[[Sampling, Vocab], bool]
    make: Callable[[Sampling, Vocab], Any]
    moves_argmax: bool = False
    remembers: bool = False


def _suppress(_: Sampling, vocab: Vocab) -> Any:
    biases = (C.llama_logit_bias * len(vocab.suppressed))(*[(token, -math.inf) for token in vocab.suppressed])
    return C.llama_sampler_init_logit_bias(vocab.size, len(biases), biases)


# common/sampling.cpp, common_sampler_init: this order, min_keep 0. A new sampler is a row.
CHAIN = (
    Step("logit_bias", lambda s, v: bool(v.suppressed), _suppress, moves_argmax=True),
    Step(
        "penalties",
        lambda s, v: (
            s.repeat_last_n > 0 and (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) != (1.0, 0.0, 0.0)
        ),
        lambda s, v: C.llama_sampler_init_penalties(
            v.size, s.repeat_last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
        ),
        moves_argmax=True,
        remembers=True,
    ),
    Step("top_k", lambda s, v: s.top_k > 0, lambda s, v: C.llama_sampler_init_top_k(s.top_k)),
    Step("top_p", lambda s, v: s.top_p < 1, lambda s, v: C.llama_sampler_init_top_p(s.top_p, 0)),
    Step("min_p", lambda s, v: s.min_p > 0, lambda s, v: C.llama_sampler_init_min_p(s.min_p, 0)),
    Step("temperature", lambda s, v: True, lambda s, v: C.llama_sampler_init_temp(s.temp if s.temp >= COLDEST else 0)),
)


class Sampler:
    """One sequence's chain and random state. One draw for each token that becomes text."""

    def __init__(self, vocab: Vocab, sampling: Sampling, seed: int, prompt: Iterable[int] = ()) -> None:
        steps = [step for step in CHAIN if step.active(sampling, vocab)]
        self._remembers = any(step.remembers for step in steps)
        self._greedy = sampling.temp < COLDEST and not any(step.moves_argmax for step in steps)
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        for step in steps:
            C.llama_sampler_chain_add(self._chain, step.make(sampling, vocab))
        C.llama_sampler_chain_add(self._chain, C.llama_sampler_init_dist(ctypes.c_uint32(seed).value))
        if self._remembers:  # penalties see the prompt
            for token in prompt:
                C.llama_sampler_accept(self._chain, token)

    def sample(self, row: LogitRow) -> int | None:
        """The token at this row, or None when no logit there is finite."""
        logits = row.logits
        best = int(logits.argmax())  # a NaN wins every argmax, so one look finds it
        if not math.isfinite(logits[best]):
            return None
        return best if self._greedy else row.sample(self._chain)

    def close(self) -> None:
        """Free the chain and its samplers, once."""
        chain, self._chain = self._chain, None
        if chain:
            C.llama_sampler_free(chain)
