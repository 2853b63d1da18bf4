"""The algorithm: guess, score every guess in one pass, keep what the target says itself."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from time import perf_counter

from spec_cli.accept import match
from spec_cli.contracts import Draft, Drafter, Live, Pass, Target


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did for one sequence. Times are those of the whole pass, in seconds."""

    draft: Draft
    kept: array[int]
    accepted: int
    cached: int
    decoded: int
    draft_s: float
    target_s: float


def speculate(target: Target, drafter: Drafter, live: Seq[Live]) -> list[Round]:
    """One round of speculative decoding (Leviathan et al. 2023, algorithm 1) for each live sequence.

    There is no rollback: the next forward pass receives a text without the rejected guesses.
    """
    start = perf_counter()
    drafts = [d.fit(s.limit, target.n_vocab) for s, d in zip(live, drafter.draft(live), strict=True)]
    guessed = perf_counter()
    passes = [Pass(s.id, s.tokens + d.tokens, len(s.tokens), len(d) + 1) for s, d in zip(live, drafts, strict=True)]
    scored = target.forward(passes)
    done = perf_counter()
    rounds = []
    for s, d, rows in zip(live, drafts, scored, strict=True):
        kept, accepted = match(s, d, rows)
        drafter.accepted(s, accepted)
        rounds.append(Round(d, kept, accepted, rows.cached, rows.decoded, guessed - start, done - guessed))
    return rounds
