"""Plain decoding beside busy programs: the default number of threads against every fixed one.

    python tests/busy.py [-m MODEL] [-n TOKENS] [--runs N]

Neighbours are pinned to none, one, and all of the cores. Runs are interleaved; the table has medians of tokens a
second, and the default's share of the best fixed number.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPIN = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"
COMMAND = ("generate", "--spec-type", "none", "--temp", "0", "--ignore-eos", "--json", "-q", "-p", "Tell a long story.")


@contextmanager
def neighbours(cores: list[int]) -> Iterator[None]:
    """A program on each of these cores that never rests."""
    running = [subprocess.Popen([sys.executable, "-c", SPIN % core]) for core in cores]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def speed(args: list[str], env: dict[str, str]) -> float:
    """Tokens a second of one run."""
    command = [sys.executable, "-m", "spec_cli", *COMMAND, *args]
    done = subprocess.run(command, env=env, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    return float(json.loads(done.stdout)["timings"]["predicted_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", default="demo")
    parser.add_argument("-n", default="200")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "LLAMA_"))}
    cores = sorted(os.sched_getaffinity(0))
    common = ["-m", given.m, "-n", given.n]
    ways = {"default": (common, env)}
    ways |= {f"-t {n}": ([*common, "-t", str(n)], env) for n in range(1, len(cores) + 1)}
    # any variable of OpenMP's keeps its own defaults
    ways[f"-t {len(cores)}, spinning"] = ([*common, "-t", str(len(cores))], {**env, "OMP_DYNAMIC": "false"})
    print("| busy cores |", " | ".join(ways), "| default / best |")
    print("|---" * (len(ways) + 2) + "|")
    for taken in dict.fromkeys((0, 1, len(cores))):
        with neighbours(cores[:taken]):
            runs = [{name: speed(*way) for name, way in ways.items()} for _ in range(given.runs)]
        rates = {name: statistics.median(run[name] for run in runs) for name in ways}
        best = max(rate for name, rate in rates.items() if name != "default")
        print(
            f"| {taken} of {len(cores)} |",
            *(f"{rate:.1f} |" for rate in rates.values()),
            f"{rates['default'] / best:.2f} |",
        )


if __name__ == "__main__":
    main()
