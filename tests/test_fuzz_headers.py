"""Whatever a file's header says, this process lives on.

SPEC_CLI_MUTANTS=5000 tries as many files; SPEC_CLI_SEED begins elsewhere.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import ask
from gguf_mutants import File, mutant
from pairs import SMALL, Pair

from spec_cli.engine import Engine
from spec_cli.errors import SpecError
from spec_cli.settings import Settings

pytestmark = [pytest.mark.forks, pytest.mark.long]

N, SEED = int(os.environ.get("SPEC_CLI_MUTANTS", "60")), int(os.environ.get("SPEC_CLI_SEED", "1"))
SECONDS = 60  # more than that is a hang


def _answer(settings: Settings) -> None:
    """A short answer, or an error."""
    try:
        with Engine(settings) as engine, suppress(SpecError):
            ask(engine, "abc def", predict=3)
    except SpecError:
        pass


def _ends(settings: Settings) -> int:
    """How a process ends that answers with these files: its exit code, negative for a signal."""
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(SECONDS)
            _answer(settings)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_no_header_ends_the_process(models: Path, pairs: dict[str, Pair], tmp_path: Path) -> None:
    targets = [models / f"{name}.gguf" for name in ("clock", "plain", "swa", "mamba", "hybrid")]
    roles = [({"model": path}, "model") for path in targets]
    roles += [({"model": pairs[name].target}, "model") for name in ("mimo", "qwen35")]
    for name in ("mimo-file", "gemma4", "eagle3", "eagle3-own"):
        files = {"model": pairs[name].target, "model_draft": pairs[name].head}
        roles += [(files, "model_draft"), (files, "model")]
    parts = {path: File.read(path.read_bytes()) for files, _ in roles for path in files.values() if path}
    bad = []
    for i in range(SEED, SEED + N):
        r = random.Random(i)
        files, role = r.choice(roles)
        how, data = mutant(parts[files[role]], r)
        path = tmp_path / "mutant.gguf"
        path.write_bytes(data)
        code = _ends(Settings(**{**SMALL, **files, role: path, "predict": 3}))
        if code:
            bad.append((i, files[role], role, how, code))
    assert not bad
