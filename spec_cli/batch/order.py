"""Finished rows in the order of the input, or at once."""

from __future__ import annotations

from collections.abc import Callable


class InOrder:
    """Passes texts on by index: 0, 1, 2, ...; what comes early waits."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._next = write, 0
        self._early: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """Texts that wait for an earlier one."""
        return len(self._early)

    def put(self, index: int, text: str) -> None:
        """One more; an empty text only takes its turn."""
        self._early[index] = text
        while self._next in self._early:
            if ready := self._early.pop(self._next):
                self._write(ready)
            self._next += 1


class AtOnce:
    """Passes texts on as they come."""

    waiting = 0

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def put(self, index: int, text: str) -> None:
        """One more."""
        if text:
            self._write(text)
