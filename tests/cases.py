"""What the tests of bug reports share: runs of the tool as a process, and how to read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tiny
from conftest import cli

Done = subprocess.CompletedProcess[bytes]

A61, A78 = tiny.alphabet(61), tiny.alphabet(78)
NOISE = b"weights stay as they are"  # a line of its own where llama.cpp was built with AMX
NGRAM_FLAGS = (
    "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 3, "--spec-ngram-simple-size-m", 8,
)  # fmt: skip


def generate(model: object, *args: object, **how: Any) -> Done:
    """A greedy run on one thread: a second one only waits, and for long when the machine is busy."""
    return cli("generate", "-m", model, "-t", 1, "--temp", 0, *args, **how)


def said(done: Done) -> list[str]:
    """The lines on standard error."""
    return [line.decode() for line in done.stderr.splitlines() if not line.startswith(NOISE)]


def answer_of(done: Done) -> dict[str, Any]:
    """The one JSON object on standard output, strictly JSON."""
    assert done.returncode == 0, done.stderr.decode()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return dict(json.loads(done.stdout, parse_constant=refuse))


def refused(done: Done, code: int) -> str:
    """The only line of a run that ended with this exit code before it answered."""
    assert (done.returncode, done.stdout) == (code, b""), done.stderr.decode()
    (line,) = said(done)
    assert line.startswith("error: ")
    return line


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "SPEC_CLI_"))}
    return {**clean, "SPEC_CLI_CONFIG": "", **(more or {})}


@contextmanager
def started(*args: object, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`generate` as a running process, killed in the end if it must be."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    command = [sys.executable, "-m", "spec_cli", "generate", *map(str, args)]
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def shell(
    script: str, *args: object, env: Mapping[str, str] | None = None, command: str = "generate"
) -> Done:  # fmt: skip
    """A line of bash; "$@" is `spec-cli generate` with the arguments, or another command of it."""
    words = ["bash", "-c", script, "bash", sys.executable, "-m", "spec_cli", command, *map(str, args)]
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, env=environment(env), timeout=60, check=False
    )


def on_terminal(
    stream: str, *args: object, env: Mapping[str, str] | None = None, command: str = "generate"
) -> tuple[int, bytes]:
    """Run with `stream` on a terminal: the exit code and what the terminal gets, its line ends undone."""
    master, slave = os.openpty()
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: slave}
    words = [sys.executable, "-m", "spec_cli", command, *map(str, args)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment(env), **pipes)
    os.close(slave)
    got = b""
    try:
        while piece := os.read(master, 65536):
            got += piece
    except OSError:  # how Linux says that the other end is gone
        pass
    os.close(master)
    return process.wait(timeout=60), got.replace(b"\r\n", b"\n")
