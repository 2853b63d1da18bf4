"""ngram-simple's index against a transliteration of the rule it must equal."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from hypothesis import given, settings, strategies as st

from spec_cli.drafters.ngram_simple import NgramSimple
from spec_cli.tokens import tokens


@dataclass
class Text:
    """What a drafter sees of a sequence."""

    tokens: array[int]
    id: int = 0
    limit: int = 1 << 20
    finish: str | None = None
    ends: list[str] = field(default_factory=list)

    def sample(self, row: object) -> None: ...
    def push(self, token: int) -> None: ...
    def end(self, reason: str) -> None: ...


def rule(text: list[int], n: int, m: int) -> list[int]:
    """The search as llama.cpp writes it: the newest token apart, places from the end, place 0 never."""
    history, newest = text[:-1], text[-1]
    length = len(history)
    if length <= n + m + 1:
        return []
    pattern = [*history[length - n + 1 :], newest]
    for j in range(length - n - 1, 0, -1):
        if history[j : j + n] == pattern:
            count = min(m, length - (j + n))
            return history[j + n : j + n + count] if count >= n else []
    return []


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=120),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 120),
)
def test_drafts_equal_the_rule_on_any_history(history: list[int], n: int, m: int, first: int) -> None:
    """A prompt, then the rest of the history token by token, as the loop gives it."""
    text = Text(tokens(history[:first]))
    drafter = NgramSimple(n, m)
    drafter.begin(text)
    for token in [None, *history[first:]]:
        if token is not None:
            text.tokens.append(token)
        (draft,) = drafter.draft([text])
        assert list(draft.tokens) == rule(list(text.tokens), n, m)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), min_size=2, max_size=4))
def test_a_new_prompt_forgets_the_last_one(prompts: list[list[int]]) -> None:
    drafter = NgramSimple(2, 4)
    for prompt in prompts:
        text = Text(tokens(prompt))
        drafter.begin(text)
        assert list(drafter.draft([text])[0].tokens) == rule(prompt, 2, 4)


def test_the_worked_example_of_the_rule() -> None:
    """Most recent match only; none within the last 2n tokens; m below n never drafts."""
    alphabet = list(range(26)) * 3
    text = Text(tokens(alphabet))
    drafter = NgramSimple(3, 8)
    drafter.begin(text)
    assert list(drafter.draft([text])[0].tokens) == [0, 1, 2, 3, 4, 5, 6, 7]
    close = Text(tokens([*range(30), 7, 8, 9, 7, 8, 9]))
    drafter.begin(close)
    assert list(drafter.draft([close])[0].tokens) == [], "the newest match has too little behind it"
    short = NgramSimple(4, 3)
    short.begin(text)
    assert list(short.draft([text])[0].tokens) == []


def test_no_limit_no_search() -> None:
    text = Text(tokens(list(range(26)) * 3), limit=0)
    drafter = NgramSimple(3, 8)
    drafter.begin(text)
    assert len(drafter.draft([text])[0]) == 0
