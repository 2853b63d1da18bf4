"""Rows of logits, read where the newest decode left them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spec_cli.errors import BackendError
from spec_cli.llama import hidden
from spec_cli.llama.log import C
from spec_cli.llama.view import view


class LogitRow:
    """A row of logits, read where the newest decode left it."""

    __slots__ = ("_ctx", "_index", "_n_vocab", "_width")

    def __init__(self, ctx: int, index: int, n_vocab: int, width: int = 0) -> None:
        self._ctx, self._index, self._n_vocab, self._width = ctx, index, n_vocab, width

    @property
    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32 [n_vocab], valid until the next forward pass."""
        pointer = C.llama_get_logits_ith(self._ctx, self._index)
        if not pointer:
            raise BackendError(f"llama.cpp has no logits for row {self._index}")
        return view(ctypes.addressof(pointer.contents), self._n_vocab)

    @property
    def hidden(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32 [width], a copy: what this row of a head leaves for the next token to start from."""
        return hidden.row(self._ctx, self._index, self._width)

    def leave(self, address: int) -> None:
        """Copy `hidden` to this address."""
        hidden.copy_row(self._ctx, self._index, address, self._width)

    def sample(self, chain: int) -> int:
        """The token that a C sampler chain takes from this row (applies and accepts)."""
        return int(C.llama_sampler_sample(chain, self._ctx, self._index))


@dataclass(slots=True)
class LogitRows:
    """The rows of one pass, how many of its tokens were reused and how many decoded."""

    cached: int = 0
    decoded: int = 0
    rows: list[LogitRow] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> LogitRow:
        return self.rows[i]
