"""What happened, counted once, from the loop's rounds."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter
from typing import Protocol


class Draft(Protocol):
    @property
    def source(self) -> str: ...
    def __len__(self) -> int: ...


class Round(Protocol):
    """What the counters need of `speculate.Round`."""

    @property
    def draft(self) -> Draft: ...
    @property
    def kept(self) -> array[int]: ...
    @property
    def accepted(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def decoded(self) -> int: ...
    @property
    def draft_s(self) -> float: ...
    @property
    def target_s(self) -> float: ...


@dataclass(slots=True)
class Timer:
    """Counts and times the blocks that run `with` it."""

    n: int = 0
    seconds: float = 0.0
    _start: float = 0.0

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.n += 1
        self.seconds += perf_counter() - self._start

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """More time for a call that was counted already."""
        start = perf_counter()
        yield
        self.seconds += perf_counter() - start


@dataclass(slots=True)
class Calls:
    """How often and how long a drafter's three functions ran."""

    begin: Timer = field(default_factory=Timer)
    draft: Timer = field(default_factory=Timer)
    accept: Timer = field(default_factory=Timer)


@dataclass(slots=True)
class Passes:
    """Target passes that continue texts, each counted once, however many texts share it."""

    n: int = 0
    rows: int = 0
    """Texts in them, added up."""
    draft_s: float = 0.0
    """Seconds of guessing before them."""
    target_s: float = 0.0
    """Seconds of the passes themselves, last pieces of prompts included."""

    def add(self, rows: int, draft_s: float, target_s: float) -> None:
        """One more."""
        self.n += 1
        self.rows += rows
        self.draft_s += draft_s
        self.target_s += target_s


@dataclass(slots=True)
class Guesses:
    """Drafts of one drafter, or of all. `drafted = accepted + rejected`, always."""

    drafts: int = 0
    """Drafts with at least one guess that were verified."""
    drafts_accepted: int = 0
    """Those of them with at least one accepted guess."""
    drafted: int = 0
    """Guesses verified, after cuts to what there was room for."""
    accepted: int = 0
    """Guesses that the target sampled too."""
    accepted_at: list[int] = field(default_factory=list)
    """Accepted guesses at position i of their draft."""

    def add(self, drafted: int, accepted: int) -> None:
        """One verified draft."""
        if not drafted:
            return
        self.drafts += 1
        self.drafts_accepted += accepted > 0
        self.drafted += drafted
        self.accepted += accepted
        self.accepted_at += [0] * (drafted - len(self.accepted_at))
        for i in range(accepted):
            self.accepted_at[i] += 1

    def merge(self, other: Guesses) -> None:
        """The drafts of another text too."""
        self.drafts += other.drafts
        self.drafts_accepted += other.drafts_accepted
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.accepted_at += [0] * (len(other.accepted_at) - len(self.accepted_at))
        for i, n in enumerate(other.accepted_at):
            self.accepted_at[i] += n

    @property
    def rejected(self) -> int:
        """Guesses that the target replaced, or never reached."""
        return self.drafted - self.accepted

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def accepted_per_position(self) -> list[float]:
        """Share of drafts whose guess at position i was accepted."""
        return [n / self.drafts for n in self.accepted_at]

    @property
    def mean_length(self) -> float:
        """Tokens a verified draft yields, its correction included; draft-free rounds left out (llama.cpp)."""
        return 1 + self.accepted / self.drafts if self.drafts else 1.0


@dataclass(slots=True)
class Stats:
    """One answer, or several. Its first round reads the prompt and drafts nothing; `rounds` are those after it."""

    answers: int = 1
    """Answers in these numbers that have a token."""
    cache_n: int = 0
    """Prompt tokens that the memory held already."""
    prompt_n: int = 0
    """Prompt tokens decoded."""
    prompt_s: float = 0.0
    """Seconds until the first token was sampled, a draft model's reading of the prompt included."""
    predicted_n: int = 0
    """Tokens sampled, an end token included."""
    predicted_s: float = 0.0
    """Seconds from the first to the last token."""
    rounds: int = 0
    """Target passes after the prompt's."""
    target_tokens: int = 0
    """Tokens that the target decoded in rounds, tokens decoded again included."""
    draft_s: float = 0.0
    """Seconds of rounds spent guessing."""
    target_s: float = 0.0
    """Seconds of rounds spent in target passes."""
    total: Guesses = field(default_factory=Guesses)
    by_drafter: dict[str, Guesses] = field(default_factory=dict)
    graphs_reused: int = 0
    """Target passes that could use the last compute graph again (llama.cpp's counter)."""

    def add_prompt(self, r: Round, n_prompt: int, seconds: float) -> None:
        """The first round; what of the prompt was decoded before it is in `prompt_n` already."""
        self.prompt_n += r.decoded
        self.cache_n, self.prompt_s = max(0, n_prompt - self.prompt_n), seconds
        self.predicted_n += len(r.kept)

    def add(self, r: Round) -> None:
        """A later round."""
        self.rounds += 1
        self.predicted_n += len(r.kept)
        self.target_tokens += r.decoded
        self.draft_s += r.draft_s
        self.target_s += r.target_s
        self.total.add(len(r.draft), r.accepted)
        if len(r.draft):
            self.by_drafter.setdefault(r.draft.source, Guesses()).add(len(r.draft), r.accepted)

    def merge(self, other: Stats) -> None:
        """The numbers of other answers too."""
        for name in (f.name for f in fields(self) if f.name not in ("answers", "total", "by_drafter")):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.answers += other.answers if other.predicted_n else 0
        self.total.merge(other.total)
        for drafter, guesses in other.by_drafter.items():
            self.by_drafter.setdefault(drafter, Guesses()).merge(guesses)

    @property
    def other_s(self) -> float:
        """Seconds of rounds outside guessing and target passes: sampling, text, printing."""
        return max(0.0, self.predicted_s - self.draft_s - self.target_s)

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens emitted after the first one, a round."""
        return (self.predicted_n - self.answers) / self.rounds if self.rounds else None

    @property
    def prompt_per_second(self) -> float | None:
        """Prompt tokens decoded a second."""
        return self.prompt_n / self.prompt_s if self.prompt_n and self.prompt_s else None

    @property
    def predicted_per_second(self) -> float | None:
        """Tokens a second over n - 1: an answer's first one comes with its prompt."""
        after = self.predicted_n - self.answers
        return after / self.predicted_s if after > 0 and self.predicted_s else None
