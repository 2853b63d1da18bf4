"""What happened, counted once, from the loop's rounds; and llama.cpp's lines about it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence as Seq
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


def acceptance_line(g: Guesses) -> str:
    """llama.cpp's documented line (docs/speculative.md)."""
    return f"draft acceptance rate = {g.acceptance_rate or 0:.5f} ({g.accepted:5d} accepted / {g.drafted:5d} generated)"


def turn_line(s: Stats, why: str) -> str:
    """llama-cli's line after an answer, with the acceptance behind it, or why nothing was drafted."""
    rates = (("Prompt", s.prompt_per_second), ("Generation", s.predicted_per_second))
    speed = " | ".join(f"{label}: {'-' if rate is None else f'{rate:.1f}'} t/s" for label, rate in rates)
    return f"[ {speed} ] {acceptance_line(s.total) if s.total.drafted else f'speculation: {why}'}"


def is_useless(g: Guesses) -> bool:
    """Whether many guesses were made and none was right."""
    return g.drafted > 200 and not g.accepted


def useless_line(g: Guesses) -> str:
    """What to say then."""
    return f"speculation: none of {g.drafted} guesses was right: this draft does not help this target"


def position_line(g: Guesses) -> str:
    """Acceptance by position of the draft (server-context.cpp, print_timings)."""
    return f"     acc per pos = ({', '.join(f'{rate:.3f}' for rate in g.accepted_per_position)})"


def timing_lines(s: Stats) -> list[str]:
    """llama-server's timing lines (server-context.cpp, print_timings)."""
    rows = (
        ("prompt eval time", s.prompt_s, s.prompt_n, s.prompt_n),
        ("       eval time", s.predicted_s, s.predicted_n, s.predicted_n - 1),
    )
    lines = []
    for label, seconds, count, over in rows:
        ms = seconds * 1e3
        each, rate = (ms / over, over / seconds) if over > 0 and seconds > 0 else (0.0, 0.0)
        lines.append(
            f"{label} = {ms:10.2f} ms / {count:5d} tokens ({each:8.2f} ms per token, {rate:8.2f} tokens per second)"
        )
    total = (s.prompt_s + s.predicted_s) * 1e3
    lines.append(f"      total time = {total:10.2f} ms / {s.prompt_n + s.predicted_n:5d} tokens")
    lines.append(f"   graphs reused = {s.graphs_reused:10d}")
    return lines


def statistics_lines(by_drafter: Mapping[str, Guesses], calls: Mapping[str, Calls]) -> list[str]:
    """One line for each drafter (common/speculative.cpp, common_speculative_print_stats)."""
    lines = []
    for name, c in calls.items():
        g = by_drafter.get(name, Guesses())
        line = (
            f"statistics {name:>16}: #calls(b,g,a) = {c.begin.n:4d} {c.draft.n:6d} {g.drafts:6d}, "
            f"#gen drafts = {g.drafts:6d}, #acc drafts = {g.drafts_accepted:5d}, "
            f"#gen tokens = {g.drafted:6d}, #acc tokens = {g.accepted:5d}"
        )
        if g.drafts:
            rates = ", ".join(f"{rate:.3f}" for rate in g.accepted_per_position)
            line += f", #mean acc len = {g.mean_length:.2f}, #acc rate/pos = ({rates})"
        ms = ", ".join(f"{timer.seconds * 1e3:.3f}" for timer in (c.begin, c.draft, c.accept))
        lines.append(f"{line}, dur(b,g,a) = {ms} ms")
    return lines


def counters(g: Guesses) -> dict[str, object]:
    """For JSON."""
    return {
        "drafted": g.drafted,
        "accepted": g.accepted,
        "acceptance_rate": None if g.acceptance_rate is None else round(g.acceptance_rate, 5),
        "accepted_per_position": [round(share, 5) for share in g.accepted_per_position],
    }


def by_drafter_json(guesses: Mapping[str, Guesses]) -> dict[str, object]:
    """For JSON: the counters of each drafter."""
    return {
        name: {"drafts": g.drafts, "drafts_accepted": g.drafts_accepted, **counters(g)} for name, g in guesses.items()
    }


def milliseconds(seconds: float) -> float:
    """For JSON: to a microsecond."""
    return round(seconds * 1e3, 3)


def as_json(s: Stats, types: Seq[str], n_max: int | None) -> dict[str, object]:
    """`timings` with llama-server's names and `speculative` with ours. Rates are None where undefined."""
    rate = {name: None if value is None else round(value, 3) for name, value in (
        ("prompt", s.prompt_per_second), ("predicted", s.predicted_per_second), ("round", s.tokens_per_round),
    )}  # fmt: skip

    return {
        "timings": {
            "cache_n": s.cache_n,
            "prompt_n": s.prompt_n,
            "prompt_ms": milliseconds(s.prompt_s),
            "prompt_per_second": rate["prompt"],
            "predicted_n": s.predicted_n,
            "predicted_ms": milliseconds(s.predicted_s),
            "predicted_per_second": rate["predicted"],
            "draft_n": s.total.drafted,
            "draft_n_accepted": s.total.accepted,
        },
        "speculative": {
            "types": list(types),
            "n_max": n_max,
            "rounds": s.rounds,
            **counters(s.total),
            "tokens_per_round": rate["round"],
            "by_drafter": by_drafter_json(s.by_drafter),
            "target_tokens": s.target_tokens,
            "draft_ms": milliseconds(s.draft_s),
            "target_ms": milliseconds(s.target_s),
            "other_ms": milliseconds(s.other_s),
        },
    }
