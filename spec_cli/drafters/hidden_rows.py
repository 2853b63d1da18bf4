"""The newest hidden states of each text, by position: enough to go on reading, never a whole text's."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from spec_cli.tokens import common_prefix

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(slots=True)
class _Stretch:
    """rows[i] is what the target made of text[start + i], having read the text up to there."""

    text: array[int]
    start: int
    rows: Array


class HiddenRows:
    """The rows of each sequence."""

    def __init__(self) -> None:
        self._stretches: dict[int, _Stretch] = {}

    def put(self, sequence: int, text: array[int], start: int, rows: Array) -> int:
        """The rows of `text[start:]`. Older ones stay where they join. Returns how many there are."""
        known = self._stretches.get(sequence)
        if known and known.start < start <= common_prefix(known.text, text):
            rows, start = np.concatenate([known.rows[: start - known.start], rows]), known.start
        self._stretches[sequence] = _Stretch(text, start, rows)
        return len(rows)

    def claim(self, sequence: int, text: array[int], first: int) -> int:
        """Up to where the rows of this text are known from position `first` on; `first` where none is.

        Texts that begin alike have the same rows: what another sequence has is taken over, as it may lose it.
        """
        ends = {i: common_prefix(s.text, text) for i, s in self._stretches.items() if s.start <= first}
        best = max(ends, key=lambda i: (ends[i], i == sequence), default=sequence)
        if ends.get(best, 0) <= first:
            return first
        if best != sequence:
            s, end = self._stretches[best], ends[best]
            self._stretches[sequence] = _Stretch(text[:end], first, s.rows[first - s.start : end - s.start])
        return ends[best]

    def get(self, sequence: int, first: int, end: int) -> Array:
        """float32 [end - first, width], a view of rows that are known."""
        s = self._stretches[sequence]
        assert s.start <= first <= end <= len(s.text), f"no hidden states of positions {first} to {end}"
        return s.rows[first - s.start : end - s.start]

    def drop(self, sequence: int, before: int) -> None:
        """Rows before this position were read."""
        s = self._stretches.get(sequence)
        if s and before > s.start:
            s.rows, s.start = s.rows[before - s.start :].copy(), before
