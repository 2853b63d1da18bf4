"""A head: a small decoder whose rows are a token and the hidden state that another model left before it."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np

from spec_cli.llama import hidden
from spec_cli.llama.abort import Abort
from spec_cli.llama.context import ContextParams
from spec_cli.llama.log import C
from spec_cli.llama.model import Model
from spec_cli.llama.rows import LogitRow
from spec_cli.llama.session import Session
from spec_cli.llama.threads import Threads
from spec_cli.tokens import common_prefix

ENCODER = 32  # rows of hidden states that the encoder takes at a time: each has logits of its own


def head_struct(model: Model, params: ContextParams, target: int) -> Any:
    """The parameters of a head's context beside its target's."""
    struct = params.c()
    struct.ctx_other = target
    if model.arch != "eagle3":
        struct.ctx_type = C.LLAMA_CONTEXT_TYPE_MTP
    return struct


class HeadSession(Session):
    """The context of a head, beside its target's: MTP blocks (in the target's own file or another), or EAGLE-3.

    n_heads: MTP blocks that take turns, one a step. mirrors: the memory is the target's. encodes: hidden
    states pass an encoder first (EAGLE-3).
    """

    def __init__(
        self, model: Model, params: ContextParams, target: Session, abort: Abort | None = None,
        threads: Threads | None = None,
    ) -> None:  # fmt: skip
        self.encodes = model.arch == "eagle3"
        self._open(model, params, head_struct(model, params, target.context), abort, threads)
        self.mirrors = not self.encodes and hidden.symbol("llama_get_ctx_other")(self._ctx) == target.context
        self.n_heads = 1 if self.encodes or self.mirrors else model.n_nextn
        self.memory.rowless = int(self.encodes)
        if not self.encodes:  # guessed rows may have pushed some of the window out
            self.memory.window = self.memory.spare = model.n_swa
        if self.mirrors:
            target.memory.watched = True
            self.memory.places, self.memory.n_cells = target.memory.places, math.inf
        self.width: int = C.llama_model_n_embd(model.handle) if self.encodes else C.llama_model_n_embd_out(model.handle)
        self._make_batch(self.width)
        self._embd_at = self._embd.ctypes.data
        hidden.symbol("llama_set_embeddings_nextn")(self._ctx, True, True)

    def claim(self, sequence: int, text: array[int]) -> int:
        """How many rows of this text are read; what others have of it is taken over, as they may lose it."""
        own = self.memory.cut(sequence, common_prefix(self.memory.places[sequence].tokens, text))
        return self.memory.borrow(sequence, text, own, len(text))

    def keep(self, sequence: int, n: int) -> None:
        """Forget all but the first n rows of a text: what follows was read with guessed hidden states."""
        if not self.mirrors:
            self.memory.cut(sequence, min(n, len(self.memory.places[sequence].tokens)))

    def step_from(self, news: Seq[tuple[int, int]], states: Seq[Any]) -> list[LogitRow]:
        """A step for each, from these hidden states, or from those that rows of the last step leave."""
        for i, state in enumerate(states):
            if isinstance(state, np.ndarray):
                self._embd[i] = state
            else:
                state.leave(self._embd_at + 4 * i * self.width)
        return self.step(news)

    def take_turn(self, head: int) -> None:
        """Let this one of several heads decode from now on."""
        hidden.symbol("llama_set_nextn_layer_offset")(self._ctx, head)

    def encode(self, rows: hidden.Rows) -> hidden.Rows:
        """A target's rows, float32 [n, width of its layers], as the head reads them: a copy, float32 [n, width]."""
        if not self.encodes:
            return rows.copy()
        pieces = np.split(rows, range(self.n_outputs, len(rows), self.n_outputs))
        return np.concatenate([self._encode(np.ascontiguousarray(piece)) for piece in pieces])

    def _encode(self, rows: hidden.Rows) -> hidden.Rows:
        n = len(rows)
        # the encoder has no positions, but llama.cpp wants some, behind those of the memory
        start = int(C.llama_memory_seq_pos_max(C.llama_get_memory(self._ctx), 0)) + 1
        self._pos[:n] = np.arange(start, start + n)
        self._seq[:n], self._output[:n] = 0, 1
        batch = C.llama_batch(
            n_tokens=n, token=None, embd=rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), pos=self._batch.pos,
            n_seq_id=self._batch.n_seq_id, seq_id=self._batch.seq_id, logits=self._batch.logits,
        )  # fmt: skip
        self._check_code(C.llama_encode(self._ctx, batch), n)
        return hidden.dense(self._ctx, n).copy()
