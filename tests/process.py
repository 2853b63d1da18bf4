"""spec-cli as a process of its own, forked from one that has imported it already: that saves most of a second.

What concerns the start itself (locales, signals, closed streams) is tested with processes begun anew.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

AT_START = ("PYTHON", "LC_", "LANG", "OMP_")  # read by Python and OpenMP as they start
_context = multiprocessing.get_context("forkserver") if os.name == "posix" else None
if _context:
    _context.set_forkserver_preload(["spec_cli.__main__", "spec_cli.cli", "spec_cli.engine", "spec_cli.batch.run"])

Done = subprocess.CompletedProcess[bytes]


def run(args: list[str], stdin: bytes, env: Mapping[str, str], timeout: float) -> Done:
    """Run spec-cli with this environment and nothing else of the caller's. Raises TimeoutExpired."""
    command = [sys.executable, "-m", "spec_cli", *args]
    changed = [k for k in {*env, *os.environ} if env.get(k) != os.environ.get(k)]
    if _context is None or any(key.startswith(AT_START) for key in changed):
        return subprocess.run(command, input=stdin, capture_output=True, env=env, timeout=timeout, check=False)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(stdin)
        child = _context.Process(target=_child, args=(args, dict(env), list(map(str, files)), os.getcwd()))
        child.start()
        child.join(timeout)
        if child.is_alive():
            child.kill()
            child.join()
            raise subprocess.TimeoutExpired(command, timeout)
        out, err = files[1].read_bytes(), files[2].read_bytes()
    return subprocess.CompletedProcess(command, child.exitcode or 0, out, err)


def _child(args: list[str], env: dict[str, str], files: list[str], cwd: str) -> None:
    writes = os.O_WRONLY | os.O_CREAT
    for fd, (name, how) in enumerate(zip(files, (os.O_RDONLY, writes, writes), strict=True)):
        opened = os.open(name, how)
        os.dup2(opened, fd)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w")), "utf-8", "backslashreplace")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["spec-cli", *args]
    from spec_cli.__main__ import main

    main()
