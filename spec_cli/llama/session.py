"""`forward`: a model as a function of whole token sequences, over a memory that is only a cache.

Prefill, reuse of a common prefix, rollback of rejected guesses and models that cannot forget a
suffix are all this one function.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np

from spec_cli.contracts import Decoded, Pass, Reader
from spec_cli.errors import BackendError, FileError, Interrupted
from spec_cli.llama import hidden, log
from spec_cli.llama.abort import Abort
from spec_cli.llama.context import ContextParams
from spec_cli.llama.log import C
from spec_cli.llama.memory import Held, Memory
from spec_cli.llama.model import Model
from spec_cli.llama.rows import LogitRow, LogitRows
from spec_cli.llama.threads import Threads
from spec_cli.tokens import common_prefix

MOST_RIDING = 4  # certain tokens that may be decoded again with a draft rather than on their own


@dataclass(slots=True)
class Work:
    """A pass on its way: `at` tokens of it are in the memory, `first` is decoded before the guesses."""

    want: Pass
    held: Held
    at: int
    first: int
    rows: LogitRows


class Session:
    """One llama_context that holds `n_sequences` texts of up to `n_ctx` tokens each, and spare ones.

    Texts that begin alike share the memory of their beginning: it is decoded once.
    """

    mirrors = False
    """Whether the memory is another context's, which a pass only looks at (Gemma 4 assistants)."""

    def __init__(
        self, model: Model, params: ContextParams, abort: Abort | None = None, threads: Threads | None = None
    ) -> None:
        several = params.n_sequences + params.n_spare > 1
        if several and model.n_swa and not model.can_drop_suffix:
            # such memory is decoded in several ubatches whatever the piece, see _decode_in_pieces
            raise BackendError(f"{model.path}: a hybrid model with a sliding window takes one sequence only")
        self._open(model, params, params.c(), abort, threads)
        if model.recurrent:
            self.memory.n_cells = math.inf  # a state takes no positions
        self.memory.can_drop_suffix = model.can_drop_suffix
        self.memory.window, self.memory.can_share = model.n_swa, params.swa_full or not model.n_swa
        if model.adapters:
            handles, scales = zip(*model.adapters, strict=True)
            n = len(handles)
            C.llama_set_adapters_lora(
                self._ctx, (C.llama_adapter_lora_p_ctypes * n)(*handles), n, (ctypes.c_float * n)(*scales)
            )

    def _open(
        self, model: Model, params: ContextParams, struct: Any, abort: Abort | None, threads: Threads | None
    ) -> None:
        """Create the context. threads: how many there are from pass to pass; None: those of the parameters.

        Raises BackendError, FileError for one that gives no next tokens.
        """
        self.model = model
        log.forget()
        self._ctx = C.llama_init_from_model(model.handle, struct)
        if not self._ctx:
            raise BackendError(f"no context for {model.role} model {model.path}: {log.reason()}")
        try:
            model.require_causal(self._ctx)
        except FileError:
            C.llama_free(self._ctx)
            raise
        self.abort = Abort() if abort is None else abort
        C.llama_set_abort_callback(self._ctx, self.abort.callback, self.abort.data)
        self.n_vocab = model.vocab.size
        self.n_ctx: int = C.llama_n_ctx(self._ctx) // params.n_sequences
        self.n_batch: int = C.llama_n_batch(self._ctx)
        self.n_ubatch: int = C.llama_n_ubatch(self._ctx)
        n_places = params.n_sequences + params.n_spare
        self.n_outputs = min(params.n_outputs, self.n_ubatch if n_places > 1 else self.n_batch)
        self.memory = Memory(self._ctx, [Held() for _ in range(n_places)], self.n_ctx * params.n_sequences)
        self._reader: Reader | None = None
        self._threads, self._n_threads = threads, params.n_threads
        self._make_batch()

    def _make_batch(self, width: int = 0) -> None:
        """The arrays that every decode is written into; width: of the hidden states that come with the tokens."""
        n = self.n_batch
        self._embd, self._width = np.zeros((n, width), np.float32), width
        self._token, self._pos, self._seq = (np.zeros(n, np.int32) for _ in range(3))
        self._one, self._output = np.ones(n, np.int32), np.zeros(n, np.int8)
        each = self._seq.ctypes.data + self._seq.itemsize * np.arange(n, dtype=np.uintp)
        self._seq_pointers = each  # llama_batch wants one pointer to a list of sequences for each token
        self._step_rows = [LogitRow(self._ctx, i, self.n_vocab, width) for i in range(self.n_outputs)]
        at = ctypes.POINTER
        self._batch = C.llama_batch(
            n_tokens=0,
            token=self._token.ctypes.data_as(at(ctypes.c_int32)),
            embd=self._embd.ctypes.data_as(at(ctypes.c_float)) if width else None,
            pos=self._pos.ctypes.data_as(at(ctypes.c_int32)),
            n_seq_id=self._one.ctypes.data_as(at(ctypes.c_int32)),
            seq_id=self._seq_pointers.ctypes.data_as(at(at(ctypes.c_int32))),
            logits=self._output.ctypes.data_as(at(ctypes.c_int8)),
        )

    def feed(self, reader: Reader, layers: Seq[int] = ()) -> None:
        """From now on give every decoded token's hidden states to a reader: the inputs of these layers, or the
        state that the model's NextN layers start from. To be called before the first pass.
        """
        self._hidden, self._reader = hidden.source(self._ctx, self.model, layers), reader

    @property
    def context(self) -> int:
        """The address of the llama_context."""
        return int(self._ctx)

    def forward(self, passes: Seq[Pass]) -> list[LogitRows]:
        """Decode what the memory lacks of each text and return the wanted rows of each.

        All rows come from the last llama_decode of the call and die at the next one.
        Raises Interrupted when the abort byte is set, BackendError when llama.cpp fails; both leave
        every sequence usable.
        """
        self._check(passes)
        self.memory.make_room([p.sequence for p in passes], sum(len(p.tokens) for p in passes))
        work = [self._begin(p) for p in passes]
        self._decode_in_pieces([(w, w.first) for w in work if w.first > w.at], keep=0)
        for w in work:
            if len(w.want.tokens) > w.want.sure and w.at <= w.want.sure:
                self.memory.save(w.want.sequence, w.at)
        n_outputs = sum(p.outputs for p in passes)
        self._decode_in_pieces([(w, len(w.want.tokens) - w.want.outputs) for w in work], keep=n_outputs)
        return [w.rows for w in work]

    def step(self, news: Seq[tuple[int, int]]) -> list[LogitRow]:
        """Decode one more token behind what each of these sequences holds; a row for each, in order.

        What `forward` does for a guess, without looking at the text again. Raises as `forward` does.
        """
        n, places, rowless = len(news), self.memory.places, self.memory.rowless
        assert n <= self.n_outputs
        if len(places) > n:
            asked = [sequence for sequence, _ in news]
            self.memory.make_room(asked, n + sum(len(places[sequence].tokens) for sequence in asked))
        for i, (sequence, token) in enumerate(news):
            held = places[sequence]
            at = len(held.tokens)
            assert held.known
            assert at < self.n_ctx
            self._token[i], self._pos[i] = token, at - rowless
            self._seq[i], self._output[i] = sequence, 1
            held.known = False
        code = self._run(n)
        if code:
            self._fail(code, n, [(sequence, places[sequence].tokens) for sequence, _ in news])
        for sequence, token in news:
            held = places[sequence]
            held.known = True
            if not self.mirrors:
                held.tokens.append(token)
        return self._step_rows[:n]

    def _check(self, passes: Seq[Pass]) -> None:
        """Our own mistakes, caught before they become assertions in C."""
        outputs = sum(p.outputs for p in passes)
        assert outputs <= self.n_outputs, f"{outputs} outputs where the context has {self.n_outputs}"
        assert len({p.sequence for p in passes}) == len(passes), "one pass for each sequence"
        for p in passes:
            assert 0 <= p.outputs <= len(p.tokens) <= self.n_ctx, f"{len(p.tokens)} tokens in {self.n_ctx}"

    def _begin(self, p: Pass) -> Work:
        """Drop what the text no longer has; decide how much is decoded before a checkpoint."""
        memory, held = self.memory, self.memory.places[p.sequence]
        most = self._most(p.sequence, p.tokens, len(p.tokens) - p.outputs)
        at = memory.cut(p.sequence, min(common_prefix(held.tokens, p.tokens), most))
        known = 0 if p.hidden is None else len(p.tokens) - len(p.hidden)
        if p.sure - at > MOST_RIDING:
            at = memory.borrow(p.sequence, p.tokens, at, most)
        if at < memory.rowless:
            held.tokens, at = p.tokens[: memory.rowless], memory.rowless
        assert at >= known, f"hidden states from token {known} on, where the head has read {at}"
        first, guesses = at, len(p.tokens) - p.sure
        if guesses and not memory.can_drop_suffix and p.sure - at > min(guesses, MOST_RIDING):
            # Riding along with every draft would be quadratic: settle them, checkpoint there.
            first = min(p.sure, len(p.tokens) - p.outputs)
        return Work(p, held, at, first, LogitRows(cached=at))

    def _most(self, sequence: int, text: array[int], most: int) -> int:
        """How many leading tokens need not be decoded, as far as who reads along is concerned."""
        return most if self._reader is None else self._reader.reach(sequence, text, most)

    @property
    def can_drop_suffix(self) -> bool:
        """Whether the memory can take back the end of a text without a checkpoint."""
        return self.memory.can_drop_suffix

    def settle(self, sequence: int, text: array[int]) -> None:
        """See `Memory.settle`."""
        self.memory.settle(sequence, text)

    def guard(self, sequences: Seq[int]) -> None:
        """What follows are guesses: a model that cannot drop a suffix remembers its state."""
        for sequence in sequences:
            self.memory.save(sequence, len(self.memory.places[sequence].tokens))

    def reach(self, sequence: int, text: array[int]) -> int:
        """How many leading tokens of a text a pass would not decode: held here, or borrowed from another."""
        return self.memory.reach(sequence, text, self._most(sequence, text, len(text)))

    def _decode_in_pieces(self, parts: list[tuple[Work, int]], keep: int) -> None:
        """Decode each work up to its end in pieces; the last piece takes `keep` output rows along.

        A piece is one ubatch: planning a second one, llama.cpp already gives away cells of a sliding
        window that another sequence in the first one still looks at.
        """
        waiting = sum(end - w.at for w, end in parts)
        while waiting and waiting + keep > self.n_ubatch:
            waiting -= self._decode(parts, min(self.n_ubatch, waiting), outputs=False)
        if waiting or keep:
            self._decode(parts, waiting, outputs=keep > 0)

    def _decode(self, parts: list[tuple[Work, int]], room: int, outputs: bool) -> int:
        """One llama_decode of up to `room` waiting tokens and, if asked, all output rows. Returns the former."""
        n, taken, spans, rowless = 0, 0, [], self.memory.rowless
        for w, end in parts:
            stop = min(end, w.at + room - taken)
            taken += stop - w.at
            if outputs:
                stop = len(w.want.tokens)
            count = stop - w.at
            if not count:
                continue
            span = slice(n, n + count)
            self._token[span] = w.want.tokens[w.at : stop]
            if w.want.hidden is not None:
                ahead = len(w.want.tokens) - len(w.want.hidden)
                self._embd[span] = w.want.hidden[w.at - ahead : stop - ahead]
            self._pos[span] = np.arange(w.at - rowless, stop - rowless, dtype=np.int32)
            self._seq[span] = w.want.sequence
            self._output[span] = 0
            if outputs and w.want.outputs:
                first = n + count - w.want.outputs
                self._output[first : n + count] = 1
                w.rows.rows = [LogitRow(self._ctx, i, self.n_vocab, self._width) for i in range(first, n + count)]
            spans.append((w, stop))
            n += count
        for w, _ in spans:
            w.held.known = False
        code = self._run(n)
        if code:
            self._fail(code, n, [(w.want.sequence, w.want.tokens) for w, _ in spans])
        seen = []
        for w, stop in spans:
            w.rows.decoded += stop - w.at
            if self._reader:
                seen.append(Decoded(w.want.sequence, w.want.tokens[:stop], w.at, w.want.sure))
            if not self.mirrors:
                w.held.tokens.extend(w.want.tokens[w.at : stop])
            w.held.known, w.at = True, stop
        if self._reader:
            self._reader.observe(seen, self._hidden(n))
        return taken

    def _run(self, n: int) -> int:
        """llama_decode of the first n places of the batch; returns its code."""
        self._batch.n_tokens = n
        threads = self._threads
        if threads is None:
            return int(C.llama_decode(self._ctx, self._batch))
        if self._n_threads != threads.n:
            self._n_threads = threads.n
            C.llama_set_n_threads(self._ctx, threads.n, threads.n)
        since = threads.clocks()
        code = int(C.llama_decode(self._ctx, self._batch))
        threads.passed((self._ctx, n), since)
        return code

    def _fail(self, code: int, n: int, texts: Seq[tuple[int, array[int]]]) -> None:
        """llama_decode failed for n tokens of these sequences' texts. Raises Interrupted or BackendError."""
        for sequence, text in texts:
            self.memory.resync(sequence, text)
        self._check_code(code, n)

    def _check_code(self, code: int, n: int) -> None:
        """Raises Interrupted or BackendError for what llama_decode or llama_encode says of n tokens."""
        if code == 2:
            raise Interrupted("interrupted")
        if code:
            raise BackendError(f"llama.cpp returned {code} for {n} tokens of {self.model.path}: {log.reason()}")

    @property
    def graphs_reused(self) -> int:
        """How many passes could reuse the last compute graph (llama_perf_context)."""
        return int(C.llama_perf_context(self._ctx).n_reused)

    def close(self) -> None:
        """Free the context, once, before its model."""
        ctx, self._ctx = self._ctx, None
        if ctx:
            C.llama_free(ctx)
