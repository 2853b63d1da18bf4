"""Acceptance rules: which guesses of a draft become text."""

from __future__ import annotations

from array import array

from spec_cli.contracts import Draft, Live, Rows
from spec_cli.tokens import tokens


def match(sequence: Live, draft: Draft, rows: Rows) -> tuple[array[int], int]:
    """Sample from the target in order; stop at the first token that was not guessed.

    With one-hot proposals this is exactly speculative sampling (Leviathan et al. 2023, algorithm 1):
    a guess x survives with the target's probability of x, else the sample given "not x" replaces it.
    The rule of llama.cpp (common/sampling.cpp, common_sampler_sample_and_accept_n).
    Returns the kept tokens, [1, len(draft) + 1] of them, and how many of those were guesses.
    """
    kept, accepted = tokens(), 0
    for i in range(len(draft) + 1):
        token = sequence.sample(rows[i])
        if token is None:
            sequence.end("stop")
            break
        kept.append(token)
        guessed = i < len(draft) and token == draft.tokens[i]
        sequence.push(token, "accepted" if guessed else "corrected" if i < len(draft) else "plain")
        if not guessed:
            break
        accepted += 1
        if sequence.finish:
            break
    return kept, accepted
