"""`spec-cli models`: names, values with their origins, the file."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from conftest import cli
from test_reference import sample

from spec_cli.cli.models import _toml
from spec_cli.config import resolve
from spec_cli.machine import usable_cores
from spec_cli.settings import flags


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
    origins = {line.split(" =")[0].lstrip("# "): line.split("  # ")[-1] for line in text.splitlines()}
    assert origins["temp"] == f"{file} [defaults] temp"
    assert origins["top-k"] == f"{file} [models.a] top-k"
    assert origins["top-p"] == "environment variable LLAMA_ARG_TOP_P"
    assert origins["min-p"] == "built in"
    assert "# model-draft is not set" in text


def test_show_says_automatic_values_in_the_words_of_their_flags(file: Path) -> None:
    """What nobody set is a comment: it stays automatic where the table is read back."""
    text = cli("models", "show", "a", "--config", file).stdout.decode()
    lines = [line.removeprefix("# ").split("  #")[0].rstrip() for line in text.splitlines()]
    shown = dict(line.split(" = ") for line in lines if " = " in line)
    words = ("flash-attn", "gpu-layers", "parallel", "seed", "ctx-size", "ctx-size-draft", "threads", "threads-batch")
    cores = str(usable_cores())
    assert [shown[word] for word in words] == ['"auto"', '"auto"', '"auto"', "-1", "512", "512", cores, cores]
    assert set(tomllib.loads(text)) == {"model", "temp", "top-k", "stop"}
    gone = cli("models", "show", "gone", "--config", file).stdout.decode()
    assert "# ctx-size is not set" in gone, "the file would know"


@pytest.mark.parametrize("source", ["model", "hf-repo"])
def test_what_show_prints_can_be_read_back(tmp_path: Path, source: str) -> None:
    """`(echo '[models.x]'; spec-cli models show a) > second.toml`: all keys, the same values."""
    keys = {flag.keys[0]: sample(name) for name, flag in flags().items() if flag.keys}
    keys |= {"stop": ["\n", 'a"\\\x7f'], "system-prompt": "zwei\nZeilen # ja", "verbose": False, "hf-repo": "u/r:Q8_0"}
    absent = {"model", "hf-repo"} - {source}
    first, second = tmp_path / "one" / "first.toml", tmp_path / "second.toml"
    first.parent.mkdir()
    lines = [f"{key} = {_toml(value)}\n" for key, value in keys.items() if key not in absent]
    first.write_text(f"[models.a]\n{''.join(lines)}")
    done = cli("models", "show", "a", "--config", first)
    second.write_text(f"[models.x]\n{done.stdout.decode()}")
    one = resolve({"config": str(first), "model": "a"}, {})
    two = resolve({"config": str(second), "model": "x"}, {})
    assert replace(one, config=None, origins={}, notes=()) == replace(two, config=None, origins={}, notes=())
    unset = {flag.keys[0] for name, flag in flags().items() if flag.keys and name not in two.origins}
    assert unset == absent


def test_a_relative_config_is_read_back_from_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    values = tomllib.loads(cli("models", "show", "a", "--config", file.name).stdout.decode())
    assert values["model"] == str(file.parent / "a.gguf")


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
