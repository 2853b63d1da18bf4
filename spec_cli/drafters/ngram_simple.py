"""Guess that the text goes on as it did the last time it looked like this."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from spec_cli.contracts import Draft, Live, Prompt
from spec_cli.tokens import tokens


@dataclass(slots=True)
class _Index:
    """Hash of n tokens -> the last place where they begin; `upto` is the first place not read yet."""

    latest: dict[int, int] = field(default_factory=dict)
    upto: int = 1  # place 0 is never tried


class NgramSimple:
    """llama.cpp's ngram-simple (common/ngram-map.cpp, common_ngram_simple_draft), on an index.

    The rule looks at every earlier place for the last `size_n` tokens, newest first; the index
    gives the same place in O(1) a token, however long the text.
    """

    name = "ngram-simple"

    def __init__(self, size_n: int, size_m: int) -> None:
        self.size_n, self.size_m = size_n, size_m
        self._indexes: dict[int, _Index] = {}

    def begin(self, sequence: Live) -> None:
        """Forget the sequence's last text and enter the new one."""
        self._indexes[sequence.id] = _Index()
        self._enter(sequence)

    def read(self, prompts: Seq[Prompt], ends: Seq[int]) -> None:
        """The rule looks at texts only."""

    def draft(self, live: Seq[Live]) -> list[Draft]:
        """What followed the newest earlier repeat, up to `size_m` tokens; nothing below `size_n`."""
        return [Draft(self._guess(s), self.name) if s.limit > 0 else Draft() for s in live]

    def accepted(self, sequence: Live, n: int) -> None:
        """The rule has no memory of its own."""

    def _guess(self, sequence: Live) -> array[int]:
        text, n, m = sequence.tokens, self.size_n, self.size_m
        known = len(text) - 1  # llama.cpp's history: all but the newest token
        if known <= n + m + 1:
            return tokens()
        index = self._enter(sequence)
        pattern = text[len(text) - n :]
        place = index.latest.get(hash(pattern.tobytes()))
        if place is None or text[place : place + n] != pattern:
            return tokens()
        start = place + n
        count = min(m, known - start)
        return text[start : start + count] if count >= n else tokens()

    def _enter(self, sequence: Live) -> _Index:
        """Enter every place that the rule would try now."""
        index, text, n = self._indexes[sequence.id], sequence.tokens, self.size_n
        end = len(text) - 1 - n  # a place must end before the newest token
        for place in range(index.upto, end):
            index.latest[hash(text[place : place + n].tobytes())] = place
        index.upto = max(index.upto, end)
        return index
