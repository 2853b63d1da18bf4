"""The number of threads on machines that other programs use: simulated cores, exact clocks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ask

from spec_cli.engine import Engine
from spec_cli.llama.log import C
from spec_cli.llama.threads import LONGEST_WAIT, Threads

CROWDED = 4.5  # measured: two threads on two cores, one of which another program uses


@dataclass
class Cores:
    """A machine where others take some cores: a pass that needs one of those lasts CROWDED times as long.

    disk: seconds that every pass waits for something that is no core.
    """

    n: int
    taken: int = 0
    disk: float = 0.0
    now: float = 0.0
    computed: float = 0.0
    threads: Threads = field(init=False)
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.threads = Threads(self.n, lambda: self.now, lambda: self.computed)

    def run(self, passes: int, work: float = 0.01, kind: object = 1) -> float:
        """Seconds that these passes took."""
        start = self.now
        for _ in range(passes):
            t = self.threads
            self.counts.append(t.n)
            since = t.clocks()
            crowded = self.taken and t.n > max(1, self.n - self.taken)
            seconds = work / t.n * (CROWDED if crowded else 1)
            self.now += seconds + self.disk
            self.computed += seconds * t.n * (0.5 if crowded else 0.97)
            t.passed(kind, since)
        return self.now - start


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_quiet_cores_are_all_used_all_the_time(n: int) -> None:
    cores = Cores(n)
    cores.run(20_000)
    assert set(cores.counts) == {n}
    assert not cores.threads.lowered


@pytest.mark.parametrize(("n", "taken", "best"), [(2, 1, 1), (2, 2, 1), (4, 1, 3), (8, 1, 7), (8, 3, 5), (16, 1, 15)])
def test_taken_cores_are_left_and_taken_up_again(n: int, taken: int, best: int) -> None:
    """A run comes close to the best fixed number, notices it in a few passes, and goes back when it can."""
    cores = Cores(n, taken)
    took = cores.run(4000)
    assert cores.threads.lowered
    assert took < 4000 * 0.01 / best / 0.8
    cores.taken = 0
    cores.run(int(2 * LONGEST_WAIT * n / 0.01))
    assert cores.threads.n == n


def test_a_neighbour_that_comes_is_noticed_at_once() -> None:
    cores = Cores(2)
    cores.run(1000)
    cores.taken = 1
    assert cores.run(100) < 1.3 * 100 * 0.01


def test_what_waits_for_a_disk_keeps_its_threads() -> None:
    """Cores that idle are no reason by themselves: the time of a pass decides."""
    cores = Cores(4, disk=0.05)
    took = cores.run(2000)
    assert not cores.threads.lowered
    assert took < 1.01 * 2000 * (0.05 + 0.01 / 4)


def test_passes_of_different_widths_are_not_compared() -> None:
    """A prompt's long pass says nothing of a short one."""
    cores = Cores(2, taken=1)
    for i in range(600):
        cores.run(1, work=0.01 * (1 + i % 4), kind=i % 4)
    assert cores.threads.lowered
    assert cores.threads.n == 1 or cores.counts[-50:].count(1) > 35


def test_waiting_threads_give_their_core_away_unless_the_user_says_otherwise() -> None:
    """libgomp's default is to spin, for seconds where another program has one of the cores."""
    code = "import os, spec_cli.llama.log; print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    for env, expected in ((plain, "1000"), ({**plain, "OMP_WAIT_POLICY": "active"}, "None")):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True, timeout=60)
        assert done.stdout.decode().strip() == expected


@pytest.mark.parametrize(("threads", "follows"), [(-1, True), (2, False)])
def test_contexts_follow_the_number_of_threads_unless_it_was_given(
    models: Path, engine: Callable[..., Engine], threads: int, follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spec_cli.machine.usable_cores", lambda: 2)
    lines: list[str] = []
    made = engine(models / "clock.gguf", lines.append, threads=threads)
    ask(made, "abc", predict=3)
    assert (made.threads is not None) == follows
    if made.threads:
        assert C.llama_n_threads(made.target.context) == 2
        made.threads.n, made.threads.lowered = 1, True
        assert ask(made, "abc", predict=3).text == "def"
        assert (C.llama_n_threads(made.target.context), C.llama_n_threads_batch(made.target.context)) == (1, 1)
    for _ in range(2):
        made.say_if_busy()
    assert [line for line in lines if "other programs use the cores" in line] == lines[len(lines) - follows :]
