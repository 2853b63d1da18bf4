"""What a context's memory holds of each text, and how it is taken back, checkpointed, lent.

The invariant: what a sequence is said to hold is exactly what the memory holds, also after an error,
an abort or a refused removal.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from spec_cli.llama.log import C
from spec_cli.tokens import common_prefix, tokens

PARTIAL_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: of a hybrid model, the recurrent part


@dataclass(slots=True)
class Held:
    """What the memory holds of one sequence."""

    tokens: array[int] = field(default_factory=tokens)
    known: bool = True  # False between the start of a decode and its success
    checkpoint: ctypes.Array[ctypes.c_char] | None = None  # recurrent state after `saved` tokens
    saved: int = 0


@dataclass(slots=True)
class Memory:
    """The memory of a llama_context, by sequence.

    n_cells: positions that all texts have together. window: positions that the model looks back, 0
    for all; what lies behind it may be overwritten, also where there is room. spare: how many of these
    a text that goes on may lack, where that costs acceptance only. can_share: texts can borrow from one another; a
    window's own cache cannot give back cells that are shared. can_drop_suffix: no recurrent state that
    cannot forget. rowless: leading tokens that take no position (EAGLE-3's first one).
    """

    ctx: int
    places: list[Held]
    n_cells: float
    window: int = 0
    spare: int = 0
    can_share: bool = True
    can_drop_suffix: bool = True
    rowless: int = 0
    watched: bool = False
    """Whether a head reads this memory (Gemma 4 assistants)."""

    @property
    def _handle(self) -> int:
        return int(C.llama_get_memory(self.ctx))

    @property
    def free_cells(self) -> float:
        """Positions that no text takes, at least: shared ones are counted for each."""
        return self.n_cells - sum(len(held.tokens) for held in self.places)

    def held(self, sequence: int) -> array[int]:
        """The tokens of a sequence that the memory holds now."""
        held = self.places[sequence]
        return held.tokens[:] if held.known else tokens()

    def cut(self, sequence: int, keep: int) -> int:
        """Make the memory hold at most `keep` tokens of a sequence; return how many it holds."""
        held = self.places[sequence]
        if held.known and keep == len(held.tokens):
            return keep
        if held.known and keep and self._window_reaches(sequence, keep, self.spare) and self._remove(sequence, keep):
            at = keep
        elif held.checkpoint is not None and 0 < held.saved <= keep and self._restore(sequence, held):
            at = held.saved
        else:
            C.llama_memory_seq_rm(self._handle, sequence, -1, -1)  # the whole range never fails
            at = 0
        del held.tokens[at:]
        held.known = True
        if held.saved > at:
            held.checkpoint, held.saved = None, 0
        return at

    def forget(self) -> None:
        """Empty it."""
        for sequence in range(len(self.places)):
            self.cut(sequence, 0)

    def settle(self, sequence: int, text: array[int]) -> None:
        """Drop the rejected guesses of a text now, where others look at the memory before its next pass.

        A sliding window gives away what the newest position no longer looks at, were it a guess; a head
        may read this very memory.
        """
        if self.can_drop_suffix and (self.window or self.watched):
            self.cut(sequence, common_prefix(self.places[sequence].tokens, text))

    def reach(self, sequence: int, text: array[int], most: int) -> int:
        """How many leading tokens of a text, at most `most`, are held here or can be borrowed."""
        held, own = self.places[sequence], 0
        keep = min(common_prefix(held.tokens, text), most) if held.known else 0
        if keep == len(held.tokens) or (self.can_drop_suffix and self._window_reaches(sequence, keep, self.spare)):
            own = keep
        elif held.checkpoint is not None and held.saved <= keep:
            own = held.saved
        return max(own, self._lender(text, most)[0])

    def borrow(self, sequence: int, text: array[int], own: int, most: int) -> int:
        """Take over what another sequence holds of this text, if that is more than `own`. Returns what is held."""
        n, source = self._lender(text, most) if len(self.places) > 1 else (0, sequence)
        if n <= own or source == sequence:
            return own
        self.cut(sequence, 0)
        C.llama_memory_seq_cp(self._handle, source, sequence, 0, n - self.rowless)
        self.places[sequence].tokens = text[:n]
        return n

    def make_room(self, asked: Seq[int], need: int) -> None:
        """Forget texts that are not asked for, the spare ones first, until those that are may have `need` positions."""
        others = [i for i in range(len(self.places)) if i not in asked and self.places[i].tokens]
        need += sum(len(self.places[i].tokens) for i in others)
        while need > self.n_cells and others:
            need -= len(self.places[others[-1]].tokens)
            self.cut(others.pop(), 0)

    def save(self, sequence: int, at: int) -> None:
        """Checkpoint a state that cannot forget, after `at` tokens, unless the last checkpoint is there already."""
        held = self.places[sequence]
        if self.can_drop_suffix or (held.checkpoint is not None and held.saved == at):
            return
        size = C.llama_state_seq_get_size_ext(self.ctx, sequence, PARTIAL_ONLY)
        buffer = held.checkpoint
        if buffer is None or len(buffer) != size:
            buffer = ctypes.create_string_buffer(size)
        held.checkpoint, held.saved = None, 0
        data = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_uint8))
        if at and C.llama_state_seq_get_data_ext(self.ctx, data, size, sequence, PARTIAL_ONLY) == size:
            held.checkpoint, held.saved = buffer, at

    def resync(self, sequence: int, text: array[int]) -> None:
        """After a failed decode of this text: believe what the memory says, if it can be believed."""
        held = self.places[sequence]
        if self.can_drop_suffix:
            at = int(C.llama_memory_seq_pos_max(self._handle, sequence)) + 1 + self.rowless
            held.tokens, held.known = text[:at], True
        else:  # the state is garbage, although it counts the aborted tokens
            self.cut(sequence, held.saved)

    def _lender(self, text: array[int], most: int) -> tuple[int, int]:
        """The longest beginning of a text that can be borrowed, at most `most` tokens, and from whom."""
        found = [(0, 0)]
        if self.can_share:
            for i, other in enumerate(self.places):
                n = min(common_prefix(other.tokens, text), most) if other.known else 0
                whole = n == len(other.tokens)  # a recurrent state is lent as it is, or not at all
                if whole or (self.can_drop_suffix and self._window_reaches(i, n)):
                    found.append((n, i))
        return max(found)

    def _window_reaches(self, sequence: int, keep: int, spare: int = 0) -> bool:
        """Whether a sliding window still holds all that position `keep` looks at, but for some to spare.

        seq_rm would say yes and the logits would be wrong.
        """
        if not self.window:
            return True
        return int(C.llama_memory_seq_pos_min(self._handle, sequence)) <= max(0, keep - self.window + spare)

    def _remove(self, sequence: int, start: int) -> bool:
        return bool(C.llama_memory_seq_rm(self._handle, sequence, start - self.rowless, -1))

    def _restore(self, sequence: int, held: Held) -> bool:
        assert held.checkpoint is not None
        size = len(held.checkpoint)
        data = ctypes.cast(held.checkpoint, ctypes.POINTER(ctypes.c_uint8))
        if C.llama_state_seq_set_data_ext(self.ctx, data, size, sequence, PARTIAL_ONLY) != size:
            return False
        return self._remove(sequence, held.saved)
