"""What an answer may be, as it grows: the choice among tokens where some are forbidden."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from spec_cli.llama.log import C
from spec_cli.llama.rows import LogitRow

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


class Constraint(ABC):
    """A language and how far the answer has come in it."""

    @abstractmethod
    def allows(self, token: int) -> bool:
        """Whether the answer may go on with this token."""

    @abstractmethod
    def forbid(self, candidates: Any) -> None:
        """Give the logit -inf to candidates (a structured array: id, logit, p) that may not come next."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """Go on behind an allowed token."""

    @abstractmethod
    def close(self) -> None:
        """Free what belongs to this answer, once."""

    def choose(self, row: LogitRow, chain: int | None) -> int | None:
        """The choice of a chain (without one: the likeliest) among what is allowed; None where nothing is."""
        every = candidates(row.logits)
        self.forbid(every)
        if not np.isfinite(every["logit"]).any():
            return None
        if chain is None:
            return int(every["logit"].argmax())
        token = selected(chain, every)
        return token if token is not None and self.allows(token) else None


def candidates(logits: Any) -> Any:
    """All tokens as C takes them."""
    every = np.zeros(len(logits), _CANDIDATE)
    every["id"] = np.arange(len(logits), dtype=np.int32)
    every["logit"] = logits
    return every


def one_candidate(token: int) -> Any:
    """One token as C takes it."""
    return np.array([(token, 1.0, 0.0)], _CANDIDATE)


def apply(sampler: int, every: Any) -> Any:
    """Let a C sampler work on candidates in place."""
    data = every.ctypes.data_as(ctypes.POINTER(C.llama_token_data))
    array = C.llama_token_data_array(data, len(every), -1, False)
    C.llama_sampler_apply(sampler, ctypes.byref(array))
    return array


def selected(chain: int, every: Any) -> int | None:
    """What a chain selects; None if it has forbidden every candidate, as biases can."""
    array = apply(chain, every)
    chosen = array.data[array.selected] if 0 <= array.selected < array.size else None
    return int(chosen.id) if chosen and np.isfinite(chosen.logit) else None
