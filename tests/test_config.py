"""Where a value comes from, and what is refused on the way."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from spec_cli.config import resolve
from spec_cli.errors import FileError, SpecError, UsageError
from spec_cli.settings import Settings, flags

EXAMPLE = Path(__file__).parents[1] / "models.example.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(
        '[defaults]\ntemp = 0.5\nctx-size = 512\n[models.a]\nmodel = "a.gguf"\ntemp = 0.6\ntop_k = 7\n'
        '[models.b]\nmodel = "b.gguf"\nspec-type = "ngram-simple"\nmodel-draft = "d.gguf"\n'
    )
    return path


def settings(file: Path, env: dict[str, str] | None = None, **given: object) -> Settings:
    return resolve({"config": str(file), **given}, env or {})


def test_flag_over_environment_over_model_over_defaults_over_built_in(file: Path) -> None:
    env = {"LLAMA_ARG_TEMPERATURE": "0.7", "LLAMA_ARG_TOP_P": "0.3"}
    s = settings(file, env, model="a", temp="0.8")
    assert (s.temp, s.top_p, s.top_k, s.ctx_size, s.min_p) == (0.8, 0.3, 7, 512, 0.05)
    assert settings(file, env, model="a").temp == 0.7
    assert settings(file, model="a").temp == 0.6
    assert settings(file, model="b").temp == 0.5
    origins = settings(file, env, model="a").origins
    assert origins["temp"] == "environment variable LLAMA_ARG_TEMPERATURE"
    assert origins["top_k"] == f"{file} [models.a] top_k"


def test_relative_paths_are_relative_to_the_file(file: Path) -> None:
    s = settings(file, model="b")
    assert (s.model, s.model_draft) == (file.parent / "b.gguf", file.parent / "d.gguf")


def test_a_draft_given_closer_than_the_type_is_used(file: Path) -> None:
    assert settings(file, model="b").spec_type == ("ngram-simple",)
    assert settings(file, model="b", model_draft="x.gguf").spec_type is None
    assert settings(file, model="b", model_draft="x.gguf", spec_type="none").spec_type == ("none",)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[defaults]\ntemprature = 1", "unknown key 'temprature' (did you mean 'temperature'?)"),
        ("[default]\ntemp = 1", "unknown table or key 'default'"),
        ("[defaults]\nprompt = 'x'", "unknown key 'prompt'"),
        ("[defaults]\ntemp = 'hot'", "temp: 'hot' is not a number"),
        ("[defaults]\ntop-k = 1.5", "top-k: 1.5 is not a whole number"),
        ("[defaults]\nctx-size = -1", "ctx-size: -1 is out of range (0 to 16777216)"),
        ("[defaults]\nraw = 3", "raw: 3 is not on or off"),
        ("[defaults]\nraw = [1]", "raw: [1] is not on or off"),
        ("[defaults]\nmodel = 5", "model: 5 is not text"),
        ("[defaults]\nsystem-prompt = 5", "system-prompt: 5 is not text"),
        ("[defaults]\nspec-type = 5", "spec-type: 5 is not text"),
        ("[defaults]\ngpu-layers = [5]", "gpu-layers: [5] is not a number"),
        ("[defaults]\nseed = '1_0'", "seed: '1_0' is not a whole number"),
        ("[defaults]\nstop = 3", "stop: 3 is not a list of texts"),
        ("[defaults]\ntemp = true", "temp: True is not a number"),
        ("[models]\nx = 3", "[models.x]: not a table"),
        ("models = 5", "models: not a table"),
        ("[[models]]\nx = 1", "models: not a table"),
        ("[defaults]\nctx-size = 1\nctx_size = 2", "is set twice"),
        ("[models.x]\ntemp = 1", "[models.x]: no model"),
        ("[defaults\n", "models.toml:"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        settings(path, model="x")
    assert part in str(error.value)
    assert str(path) in str(error.value)


def test_a_name_that_nobody_knows_lists_those_that_are_known(file: Path) -> None:
    with pytest.raises(FileError, match=r"neither a file nor a name .*\ba, b\b"):
        settings(file, model="c")


def test_an_asked_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nope\.toml does not exist"):
        settings(tmp_path / "nope.toml", model="a")


def test_the_demo_is_a_name_and_the_default(smol: Path) -> None:
    for given in ({}, {"model": "demo"}):
        s = resolve({**given}, {"XDG_CONFIG_HOME": "/nonexistent"})
        assert (s.model, s.spec_type, s.spec_ngram_simple_size_n, s.spec_ngram_simple_size_m) == (
            smol,
            ("ngram-simple",),
            4,
            8,
        )


def test_a_folder_does_not_hide_a_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    assert settings(file, model="a").model == file.parent / "a.gguf"


def test_a_negated_environment_name_turns_a_switch_off(file: Path) -> None:
    assert settings(file, {"LLAMA_ARG_NO_REPACK": "1"}, model="a").repack is False
    assert settings(file, {"LLAMA_ARG_REPACK": "on"}, model="a").repack is True


def test_removed_environment_names_are_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="LLAMA_ARG_DRAFT_MAX: the argument has been removed"):
        settings(file, {"LLAMA_ARG_DRAFT_MAX": "4"}, model="a")


def test_the_example_names_every_key_and_loads() -> None:
    data = tomllib.loads(EXAMPLE.read_text())
    for name in data["models"]:
        s = settings(EXAMPLE, model=name)
        wanted = data["models"][name].get("model")
        assert s.model == (EXAMPLE.parent / wanted if wanted else None)
        assert (s.hf_repo is not None) == (wanted is None)
    used = set(data["defaults"]).union(*data["models"].values())
    assert used == {flag.keys[0] for flag in flags().values() if flag.keys}


def test_every_flag_has_a_default_in_range_and_one_spelling() -> None:
    spellings = [name for flag in flags().values() for name in (*flag.names, *flag.off)]
    assert len(spellings) == len(set(spellings))
    for name, flag in flags().items():
        value = getattr(Settings(), name)
        if isinstance(value, int | float) and flag.low is not None:
            assert flag.low <= value <= (flag.high or value), name
        if flag.choices and not flag.parse:
            assert value in flag.choices


def test_errors_know_their_exit_codes() -> None:
    codes = {kind.__name__: kind.exit_code for kind in SpecError.__subclasses__()}
    assert codes == {"UsageError": 2, "FileError": 3, "PromptError": 4, "BackendError": 5, "Interrupted": 130}
