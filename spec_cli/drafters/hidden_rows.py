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
    """Rows by sequence; one may be asked for with another sequence's text, as texts that begin alike have the same."""

    def __init__(self) -> None:
        self._stretches: dict[int, _Stretch] = {}

    def put(self, sequence: int, text: array[int], start: int, rows: Array) -> int:
        """The rows of `text[start:]`. Older ones stay where they join. Returns how many there are."""
        known = self._stretches.get(sequence)
        if known and known.start < start <= common_prefix(known.text, text):
            rows, start = np.concatenate([known.rows[: start - known.start], rows]), known.start
        self._stretches[sequence] = _Stretch(text, start, rows)
        return len(rows)

    def end(self, text: array[int], first: int) -> int:
        """Up to where the rows from position `first` on are known without a gap; `first` where none is."""
        ends = [common_prefix(s.text, text) for s in self._stretches.values() if s.start <= first]
        return max([first, *ends])

    def get(self, text: array[int], first: int, end: int) -> Array:
        """float32 [end - first, width], a view."""
        for s in self._stretches.values():
            if s.start <= first and end <= common_prefix(s.text, text):
                return s.rows[first - s.start : end - s.start]
        raise AssertionError(f"no hidden states of positions {first} to {end}")

    def drop(self, sequence: int, before: int) -> None:
        """Rows before this position were read."""
        s = self._stretches.get(sequence)
        if s and before > s.start:
            s.rows, s.start = s.rows[before - s.start :].copy(), before
