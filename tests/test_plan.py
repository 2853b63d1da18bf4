"""Sizes before weights: what fits, what is lowered and said, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import tiny

from spec_cli import machine
from spec_cli.errors import UsageError
from spec_cli.llama.context import ContextParams
from spec_cli.llama.fit import context_bytes
from spec_cli.llama.model import Model
from spec_cli.llama.session import Session
from spec_cli.plan import plan
from spec_cli.settings import Settings

MIB = 1 << 20


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was made for a million positions."""
    return tiny.plain(tmp_path_factory.mktemp("long") / "long.gguf", n_ctx=1 << 20)


@pytest.mark.parametrize("memory", ["plain.gguf", "swa.gguf", "mamba.gguf", "hybrid.gguf"])
@pytest.mark.parametrize("n_ctx", [4096, 1 << 18])
def test_the_estimate_is_what_a_context_takes(models: Path, memory: str, n_ctx: int) -> None:
    """Within 20 % and 24 MiB; large contexts are scaled up from a smaller plan."""
    params = ContextParams(n_ctx, n_outputs=9)
    with Model(models / memory, "target", dry=True) as dry:
        estimate = context_bytes(dry, params)
    assert estimate is not None
    with Model(models / memory, "target") as model:
        before = psutil.Process().memory_info().rss
        session = Session(model, params)
        taken = psutil.Process().memory_info().rss - before
        session.close()
    assert taken <= estimate * 1.2 + 24 * MIB


def test_the_default_context_is_lowered_to_half_of_the_free_memory(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    roomy = plan(Settings(model=long, threads=1), said.append)
    assert (roomy.target.n_ctx, said) == (1 << 20, [])
    monkeypatch.setattr(machine, "free_memory", lambda: 200 * MIB)
    for draft in (None, long):
        said.clear()
        tight = plan(Settings(model=long, model_draft=draft, threads=1), said.append)
        assert 256 <= tight.target.n_ctx < 1 << 20
        useless = (
            f"-md {long} is as large as the target (0 MiB against 0 MiB): as a draft model it cannot make it faster"
        )
        assert said == ([useless] if draft else []) + [
            f"context: {tight.target.n_ctx} tokens of the model's {1 << 20}, "
            "to fit in half of the free memory (-c sets it)"
        ]
        with Model(long, "target", dry=True) as dry:
            need = sum(context_bytes(dry, p) or 0 for p in (tight.target, tight.draft)[: 2 if draft else 1])
        assert 50 * MIB < need <= 100 * MIB
    assert tight.draft.n_ctx == tight.target.n_ctx


def test_a_context_that_cannot_fit_is_refused_with_both_numbers(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: 200 * MIB)
    asked = {"origins": {"ctx_size": "-c/--ctx-size"}, "ctx_size": 1 << 20}
    with pytest.raises(UsageError, match=r"-c/--ctx-size 1048576: needs \d\.\d GiB, 200 MiB are free"):
        plan(Settings(model=long, threads=1, **asked), lambda line: None)  # type: ignore[arg-type]
    asked = {"origins": {"ctx_size_draft": "-cd/--ctx-size-draft"}, "ctx_size_draft": 1 << 20}
    with pytest.raises(UsageError, match="-cd/--ctx-size-draft 1048576: needs"):
        plan(Settings(model=long, model_draft=long, threads=1, **asked), lambda line: None)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity here")
def test_default_threads_respect_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert machine.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= machine.usable_cores() <= len(allowed)


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text(f"{64 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{24 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {3 * MIB}\nactive_file {2 * MIB}\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert machine.free_memory() == 45 * MIB, "files in memory are given back on demand"
    assert machine.usable_cores() == 2
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.free_memory() > 40 * MIB
    assert machine.usable_cores() == 64
