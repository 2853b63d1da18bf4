"""How many threads passes run on: those that were planned, fewer while other programs use the cores.

ggml's threads wait for one another some hundred times a pass. Where another program holds one of their cores,
all wait for it, and fewer threads are then faster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from statistics import fmean
from time import perf_counter, process_time

BUSY = 0.8  # of the time that all threads could have computed; quiet cores give 0.95 and more
BETTER = 0.95  # times of a pass that are worth a change
HOPELESS = 2.0  # a pass on trial that takes this many times as long ends the trial
PASSES, SECONDS = 3, 0.05  # a window is at least that long
PATIENCE = 16  # passes without one of a width that can be compared
FIRST_WAIT, LONGEST_WAIT = 1.0, 8.0  # seconds until something else is tried; it doubles while that does not help

Times = dict[Hashable, list[float]]


class Threads:
    """The number of threads of all contexts of a run, 1 to `most`. wall, cpu: clocks, in seconds.

    It is lowered when the threads of a window of passes computed for much less than the window's time,
    kept only if passes of the same widths then took less time, and raised again now and then by the same rule.
    """

    def __init__(
        self, most: int, wall: Callable[[], float] = perf_counter, cpu: Callable[[], float] = process_time
    ) -> None:
        self.most = self.n = most
        self.lowered = False
        """Whether fewer threads were faster at some time."""
        self._wall, self._cpu = wall, cpu
        self._before: tuple[int, Times] | None = None  # what a trial is compared with
        self._ceiling = most + 1  # the lowest number that did not help when it was tried
        self._busy = False  # in the last window
        self._wait, self._next = FIRST_WAIT, 0.0
        self._clear()

    def _clear(self) -> None:
        self._times: Times = {}
        self._passes, self._spent, self._computed = 0, 0.0, 0.0

    def clocks(self) -> tuple[float, float]:
        """To be read before a pass, for `passed`."""
        return self._wall(), self._cpu()

    def passed(self, kind: Hashable, since: tuple[float, float]) -> None:
        """A pass has ended. kind: what takes about the same time each time: a context and a width."""
        now, computed = self.clocks()
        took = now - since[0]
        self._times.setdefault(kind, []).append(took)
        self._passes += 1
        self._spent += took
        self._computed += computed - since[1]
        hopeless = self._before and kind in self._before[1] and took > HOPELESS * fmean(self._before[1][kind])
        if not hopeless and (self._passes < PASSES or self._spent < SECONDS):
            return
        if self._before:
            self._judge(now)
            return
        times, was_busy = self._times, self._busy
        self._busy = self._computed < BUSY * self.n * self._spent
        self._clear()
        if now < self._next:
            return
        if self._busy and self.n > 1:
            if was_busy:  # a neighbour may have come amid the first such window
                self._try(self.n // 2, times)
        elif self.n < self.most:
            if self._ceiling <= self.n + 1:
                self._ceiling = self.most + 1
            self._try(max(self.n + 1, (self.n + self._ceiling) // 2), times)

    def _try(self, n: int, times: Times) -> None:
        self._before = self.n, times
        self.n = n

    def _judge(self, now: float) -> None:
        """Keep the number on trial if it is better."""
        assert self._before
        old, before = self._before
        common = self._times.keys() & before.keys()
        if not common and self._passes < PATIENCE:
            return
        took, took_before = (sum(fmean(times[kind]) for kind in common) for times in (self._times, before))
        if common and took < BETTER * took_before:
            self._wait = FIRST_WAIT
            if self.n < old:
                self.lowered, self._ceiling, self._next = True, old, now + self._wait
        else:
            if self.n > old:
                self._ceiling = self.n
            self.n = old
            self._wait = min(LONGEST_WAIT, 2 * self._wait)
            self._next = now + self._wait
        self._before = None
        self._clear()
