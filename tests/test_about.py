"""`--version` and `--list-devices`: lines for a bug report."""

from __future__ import annotations

import platform
import re
import tomllib
from pathlib import Path

import pytest
from conftest import cli

from spec_cli import __version__
from spec_cli.cli.about import version_lines
from spec_cli.llama import build


def test_version_is_ours_first_then_what_is_under_it() -> None:
    """The library's version and commit, its kernels, Python and the system."""
    for args in (("--version",), ("generate", "--version"), ("-m", "x", "--version")):
        done = cli(*args)
        assert (done.returncode, done.stderr) == (0, b"")
        ours, binding, library, kernels, system = done.stdout.decode().splitlines()
        assert ours == f"spec-cli {__version__}"
        assert binding == f"llama-cpp-python {build.version()}"
        assert re.fullmatch(r"llama\.cpp [0-9a-f]{7,}(-dirty)?", library)
        assert "CPU : " in kernels
        assert system.startswith(f"Python {platform.python_version()}, {platform.system()}")


def test_the_pinned_commit_is_that_of_the_pinned_version() -> None:
    """Who moves the pin moves the constant beside it; a library that knows its commit confirms it."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert f"llama-cpp-python=={build.PINNED}" in project["dependencies"]
    if build.version() == build.PINNED:
        assert build.PINNED_COMMIT.startswith(build.commit().removesuffix("-dirty"))


@pytest.mark.long  # Python asks a program for the processor
def test_a_library_that_cannot_be_loaded_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is when a version is asked for."""
    monkeypatch.delattr("spec_cli.llama.build")
    monkeypatch.setitem(__import__("sys").modules, "spec_cli.llama.build", None)
    ours, broken, system = version_lines()
    assert ours == f"spec-cli {__version__}"
    assert broken.startswith("llama-cpp-python cannot be loaded: ")
    assert system.startswith("Python ")


def test_list_devices_is_llama_cpps_list() -> None:
    """Each name is one that -dev takes; the flag ends any command, as in llama.cpp."""
    done = cli("--list-devices")
    head, *devices = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr, head) == (0, b"", "Available devices:")
    assert devices
    for line in devices:
        assert re.fullmatch(r"  \S+: .+ \(\d+ MiB, \d+ MiB free\)", line)
    assert cli("generate", "-p", "x", "--list-devices").stdout.splitlines()[0] == b"Available devices:"
