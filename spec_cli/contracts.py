"""What the parts hand to one another. Nothing here does any work."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, Protocol

from spec_cli.tokens import Kind, tokens


@dataclass(frozen=True, slots=True)
class Pass:
    """One sequence's part of a forward pass.

    tokens: the whole text so far, guesses included.
    sure: how many leading tokens are certain; the rest are guesses that may be taken back.
    outputs: how many last rows of logits are wanted (0: only fill the memory).
    hidden: float32 [n, width], for a head: the hidden states that come with the last n tokens.
    """

    sequence: int
    tokens: array[int]
    sure: int
    outputs: int
    hidden: Any = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one decode took in of a sequence: `tokens[start:]`, of which those from `sure` on are guesses."""

    sequence: int
    tokens: array[int]
    start: int
    sure: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed tokens and the name of the drafter that made them (empty: none did).

    probs: for each guess, the proposal's probability of every token; None means one-hot
    (the guess was certain), which is what every drafter so far proposes.
    """

    tokens: array[int] = field(default_factory=tokens)
    source: str = ""
    probs: Seq[Any] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def fit(self, limit: int, n_vocab: int) -> Draft:
        """The longest prefix of at most `limit` ids that the target knows."""
        known = 0
        for token in self.tokens[: max(limit, 0)]:
            if not 0 <= token < n_vocab:
                break
            known += 1
        if known == len(self.tokens):
            return self
        probs = None if self.probs is None else self.probs[:known]
        return Draft(self.tokens[:known], self.source, probs)


class Row(Protocol):
    """One row of logits of the newest forward pass; it dies at the next one."""

    @property
    def logits(self) -> Any:
        """float32 [n_vocab], a view into the backend's memory."""


class Rows(Protocol):
    """The rows that a `Pass` asked for, and what they cost."""

    cached: int
    decoded: int

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Row: ...


class Target(Protocol):
    """A model as a function of a whole token sequence."""

    n_vocab: int

    def forward(self, passes: Seq[Pass]) -> Seq[Rows]:
        """The wanted rows of each pass; what the memory already holds is not computed again."""

    def settle(self, sequence: int, text: array[int]) -> None:
        """Nothing but this text will be asked for; guesses that it lacks are of no more use."""


class Reader(Protocol):
    """One that reads the target's hidden states as they are made. They are never kept for a whole text."""

    def reach(self, sequence: int, text: array[int], most: int) -> int:
        """How many leading tokens, at most `most`, need not be decoded again for what is still to be read.

        A pass of this text follows: what others have read of it may be taken over.
        """

    def observe(self, parts: Seq[Decoded], rows: Any) -> None:
        """The rows, float32 [n, width], of what was just decoded, part after part; they die with the next decode."""


class Prompt(Protocol):
    """A text in the memory place `id`, and the names of the drafters that may guess for it."""

    id: int
    tokens: array[int]
    types: tuple[str, ...]


class Live(Prompt, Protocol):
    """A sequence that is being generated, as the loop sees it.

    n_max: the longest draft that was asked for; None: each drafter's own. limit: the longest now.
    """

    n_max: int | None
    limit: int
    finish: str | None

    def sample(self, row: Row) -> int | None:
        """The target's own choice at this row; None where nothing may come, or the text has ended itself."""

    def push(self, token: int, kind: Kind) -> None:
        """Take one token into the text; sets `finish` when it ends it."""

    def end(self, reason: str) -> None:
        """End the text without a token."""


class Drafter(Protocol):
    """One way of guessing. Wrong guesses cost time, never correctness. name: as in `--spec-type`."""

    name: str

    def begin(self, sequence: Live) -> None:
        """A new prompt is about to be read into `sequence`."""

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:
        """The target reads each prompt up to its end: a memory of one's own may do so too."""

    def draft(self, live: Seq[Live]) -> Seq[Draft]:
        """Guesses for each sequence, in order; what is beyond `limit` is cut off. `live` is not changed."""

    def accepted(self, sequence: Live, n: int) -> None:
        """How many guesses of the newest draft were right, whoever made it."""
