"""A head guesses from the target's hidden states: MTP blocks (draft-mtp) and EAGLE-3 (draft-eagle3)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence as Seq
from typing import Any, Protocol

import numpy as np

from spec_cli.contracts import Decoded, Live, Pass, Row, Rows
from spec_cli.drafters.greedy import GreedyDrafter, Guess, Limits
from spec_cli.drafters.hidden_rows import Array, HiddenRows

MOST_UNREAD = 64  # hidden states that may wait for a draft to read them


class HeadRow(Row, Protocol):
    """hidden: what the row leaves for the next token, float32 [width]."""

    @property
    def hidden(self) -> Array: ...


class HeadRows(Rows, Protocol):
    """Rows of a head."""

    def __getitem__(self, i: int, /) -> HeadRow: ...


class Head(Protocol):
    """A model whose rows are a token and a hidden state of `width` floats (llama/head.py)."""

    n_vocab: int
    n_ctx: int
    width: int
    mirrors: bool
    n_heads: int

    def forward(self, passes: Seq[Pass]) -> Seq[HeadRows]: ...
    def step_from(self, news: Seq[tuple[int, int]], states: Seq[Array | HeadRow]) -> Seq[HeadRow]: ...
    def encode(self, rows: Array) -> Array: ...
    def keep(self, sequence: int, n: int) -> None: ...
    def take_turn(self, head: int) -> None: ...
    def claim(self, sequence: int, text: array[int]) -> int: ...


class DraftHead(GreedyDrafter):
    """llama.cpp's draft-mtp and draft-eagle3 (common/speculative.cpp, common_speculative_impl_draft_mtp, _eagle3).

    A row pairs a token with the target's hidden state of the token before it. An MTP block has such a
    row for every token, the first one with zeros; EAGLE-3 has none for the first token. Both read
    the target's states for the text that is certain and their own for what they guess, so guessed rows
    are taken back after each draft.

    Three ways to go from one guess to the next:
    a single block reads its guess with its own state, a position further;
    of several blocks (MTP, Gloeckle et al. 2024) each makes one guess, having read all the others;
    a block that looks at the target's memory stays where the text ends.
    """

    def __init__(self, name: str, head: Head, target_vocab: int, limits: Limits, say: Callable[[str], None]) -> None:
        super().__init__(n_ctx=head.n_ctx, n_vocab=head.n_vocab, target_vocab=target_vocab, limits=limits, say=say)
        self.name, self._head = name, head
        self._rows = HiddenRows()
        self._last: dict[int, HeadRow] = {}  # the row of the newest guess
        self._states: dict[int, list[Array]] = {}  # of all guesses, where heads take turns

    def reach(self, sequence: int, text: array[int], most: int) -> int:
        """How many leading tokens the target need not decode again for the head to read on."""
        if self._head.mirrors:
            return most
        first = max(0, self._head.claim(sequence, self._readable(text)) - 1)
        return most if first >= most else min(most, self._rows.claim(sequence, text, first))

    def observe(self, parts: Seq[Decoded], rows: Any) -> None:
        """Keep the target's hidden states; read those of a prompt now, the others when a draft is wanted."""
        states, at, late = self._head.encode(rows), 0, []
        for part in parts:
            n = len(part.tokens) - part.start
            if self._rows.put(part.sequence, part.tokens, part.start, states[at : at + n]) > MOST_UNREAD:
                late.append((part.sequence, part.tokens[: part.sure]))
            at += n
        self._catch_up(late)

    def _start(self, s: Live) -> Guess:
        g = super()._start(s)
        if self._head.n_heads > 1:
            g.most = min(g.most, self._head.n_heads)
        return g

    def _least(self, g: Guess) -> int:
        return min(super()._least(g), max(1, g.most))  # a draft that was cut short is not thrown away

    def _catch_up(self, texts: Seq[tuple[int, array[int]]]) -> None:
        """Read the target's hidden states of all but each text's last token."""
        passes = []
        for sequence, text in [] if self._head.mirrors else texts:
            own = self._readable(text)
            done = self._head.claim(sequence, own)
            if done < len(own):
                states = self._rows.get(sequence, max(0, done - 1), len(text) - 1)
                if not done:
                    states = np.concatenate([np.zeros((1, self._head.width), np.float32), states])
                passes.append(Pass(sequence, own, len(own), 0, states))
        if passes:
            self._for_each_head(passes)
        for sequence, text in texts:
            self._head.keep(sequence, len(text))
            self._rows.drop(sequence, len(text) - 1)

    def _for_each_head(self, passes: Seq[Pass]) -> None:
        for turn in range(self._head.n_heads):
            if self._head.n_heads > 1:
                self._head.take_turn(turn)
                for p in passes:
                    self._head.keep(p.sequence, len(p.tokens) - len(p.hidden))
            self._head.forward(passes)

    def _pass(self, step: int, guesses: Seq[Guess]) -> Seq[Row]:
        if not step:
            self._catch_up([(g.id, g.text[: g.sure - 1]) for g in guesses])
        states = [self._last[g.id] if step else self._rows.get(g.id, g.sure - 2, g.sure - 1)[0] for g in guesses]
        rows: Seq[HeadRow]
        if self._head.n_heads > 1:
            rows = self._turn(step, guesses, states)
        else:
            rows = self._head.step_from([(g.id, g.text[-1]) for g in guesses], states)
        for g, row in zip(guesses, rows, strict=True):
            self._last[g.id] = row
        return rows

    def _turn(self, step: int, guesses: Seq[Guess], states: Seq[Array | HeadRow]) -> Seq[HeadRow]:
        """The next of several heads reads all guesses so far, each with the state that its head left."""
        self._head.take_turn(step)
        passes = []
        for g, state in zip(guesses, states, strict=True):
            self._head.keep(g.id, g.sure - 1)
            before = self._states[g.id] if step else []
            self._states[g.id] = [*before, state if isinstance(state, np.ndarray) else state.hidden]
            passes.append(Pass(g.id, g.text[:], len(g.text), 1, np.stack(self._states[g.id])))
        return [r[0] for r in self._head.forward(passes)]

    def _stop(self, guesses: Seq[Guess]) -> None:
        """Take back guessed rows; the row of the text's last token has the target's state, and may stay."""
        for g in guesses:
            self._head.keep(g.id, g.sure - (self._head.n_heads > 1))
