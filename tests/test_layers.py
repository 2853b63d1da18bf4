"""The shape of the code: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import spec_cli

ROOT = Path(spec_cli.__file__).parent
# Each room and what it may use; rooms further down may not look up.
LAYERS = [
    {"errors", "__init__"},
    {"tokens", "settings", "shards"},
    {"apart", "contracts", "machine", "model_names", "text", "values"},
    {"stats", "accept", "llama"},
    {"speculate", "sequence", "drafters", "report"},
    {"plan", "scheduler"},
    {"answer"},
    {"engine"},
    {"config", "chat", "hub"},
    {"batch"},
    {"render"},
    {"cli"},
    {"__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_arrows_point_down_only() -> None:
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in imports(path):
            parts = module.split(".")
            if parts[0] != "spec_cli" or len(parts) < 2 or parts[1] not in RANK:
                continue
            assert RANK[parts[1]] < RANK[own] or parts[1] == own, f"{path.name} imports {module}"


def test_only_llama_imports_llama_cpp() -> None:
    for path in ROOT.rglob("*.py"):
        if path.parent.name != "llama":
            assert not any(m.split(".")[0] == "llama_cpp" for m in imports(path)), path


def test_nothing_of_one_system_only_is_imported_at_import() -> None:
    """Such modules may only be imported where they are used, and may be absent."""
    unix = {"termios", "fcntl", "tty", "pty", "resource", "readline", "pwd", "grp", "curses"}
    for path in ROOT.rglob("*.py"):
        top = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)]
        names = {alias.name for n in top for alias in n.names} | {
            n.module for n in top if isinstance(n, ast.ImportFrom)
        }
        assert not names & unix, path


def test_the_loop_knows_no_model_and_no_drafter() -> None:
    for name in ("speculate.py", "accept.py", "contracts.py"):
        for module in imports(ROOT / name):
            assert not module.startswith(("spec_cli.llama", "spec_cli.drafters", "spec_cli.engine", "numpy")), module


def test_the_loop_fits_on_a_screen() -> None:
    assert len((ROOT / "speculate.py").read_text().splitlines()) < 60
