"""`spec-cli models`: names, values with their origins, the file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import tiny
from conftest import cli


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tiny.clock(tmp_path / "a.gguf")
    path = tmp_path / "models.toml"
    path.write_text(
        '[defaults]\ntemp = 0.5\n[models.a]\nmodel = "a.gguf"\ntop-k = 7\nstop = ["\\n"]\n'
        '[models.gone]\nmodel = "b.gguf"\n'
    )
    return path


def test_list_names_the_models_and_what_is_missing(file: Path) -> None:
    done = cli("models", "list", "--config", file)
    lines = done.stdout.decode().splitlines()
    assert f"a     {file.parent / 'a.gguf'}" in lines
    assert f"gone  {file.parent / 'b.gguf'}  (no such file)" in lines


def test_show_prints_each_value_with_its_origin_as_toml(file: Path) -> None:
    done = cli("models", "show", "a", "--config", file, env={"LLAMA_ARG_TOP_P": "0.3"})
    text = done.stdout.decode()
    values = tomllib.loads(text)
    assert (values["temp"], values["top-k"], values["top-p"], values["stop"]) == (0.5, 7, 0.3, ["\n"])
    assert values["model"] == str(file.parent / "a.gguf")
    origins = {line.split(" =")[0]: line.split("  # ")[-1] for line in text.splitlines()}
    assert origins["temp"] == f"{file} [defaults] temp"
    assert origins["top-k"] == f"{file} [models.a] top-k"
    assert origins["top-p"] == "environment variable LLAMA_ARG_TOP_P"
    assert origins["min-p"] == "built in"
    assert "# model-draft is not set" in text


def test_path_is_the_file_that_is_read(file: Path) -> None:
    assert cli("models", "path", "--config", file).stdout.decode().strip() == str(file)
    assert cli("models", "path", env={"SPEC_CLI_CONFIG": "/x/y.toml"}).stdout == b"/x/y.toml\n"
    assert cli("models", "path").stdout.decode().strip().endswith("models.toml")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("models", "show", "nobody"), 3, "there is no model 'nobody'"),
        (("models", "show"), 2, "Missing argument"),
        (("models", "lits"), 2, "No such command"),
        (("models", "list", "--config", "/no/such.toml"), 3, "/no/such.toml does not exist"),
    ],
)
def test_mistakes_are_one_line(args: tuple[str, ...], code: int, words: str) -> None:
    done = cli(*args)
    assert (done.returncode, done.stdout) == (code, b"")
    (line,) = done.stderr.decode().splitlines()
    assert words in line


def test_a_named_model_runs(file: Path) -> None:
    assert cli("generate", "-m", "a", "--config", file, "-p", "abc", "-n", 3, "-t", 1).stdout == b"def\n"
