"""What -m may be besides a path: an address at Hugging Face; and what a name that is none leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cli.config import resolve
from spec_cli.errors import FileError, UsageError
from spec_cli.model_names import hub_address, is_repo
from spec_cli.settings import Settings


def settings(env: dict[str, str] | None = None, **given: object) -> Settings:
    return resolve(given, {"SPEC_CLI_CONFIG": "", "XDG_CONFIG_HOME": "/nonexistent", **(env or {})})


@pytest.mark.parametrize(
    ("typed", "repo", "file"),
    [
        ("hf.co/u/r", "u/r", ""),
        ("hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", ""),
        ("huggingface.co/u/r/", "u/r", ""),
        ("https://huggingface.co/u/r", "u/r", ""),
        ("https://hf.co/u/r:Q8_0", "u/r:Q8_0", ""),
        ("https://huggingface.co/u/r/tree/main", "u/r", ""),
        ("https://huggingface.co/u/r/resolve/main/a/b.gguf?download=true", "u/r", "a/b.gguf"),
        ("https://huggingface.co/u/r/blob/main/b.gguf", "u/r", "b.gguf"),
    ],
)
def test_an_address_at_the_hub_is_a_repository(typed: str, repo: str, file: str) -> None:
    assert hub_address(typed) == (repo, file)
    s = settings(model=typed)
    assert (s.model, s.hf_repo, s.hf_file) == (None, repo, file or None)
    words = f"-hf {repo}" + (f" -hff {file}" if file else "")
    assert s.notes == (f"-m/--model {typed}: taken as {words}",)
    s = settings(model="m.gguf", model_draft=typed)
    assert (s.hf_repo_draft, s.model_draft) == (repo, Path(file) if file else None)
    assert s.notes[0].endswith(f"taken as -hfd {repo}" + (f" -md {file}" if file else ""))


def test_addresses_are_read_from_every_place(tmp_path: Path) -> None:
    s = settings({"LLAMA_ARG_MODEL": "hf.co/u/r"})
    assert (s.hf_repo, s.notes) == ("u/r", ("environment variable LLAMA_ARG_MODEL hf.co/u/r: taken as -hf u/r",))
    file = tmp_path / "models.toml"
    draft = 'model-draft = "https://hf.co/u/d/blob/main/d.gguf"'
    file.write_text(f'[models.a]\nmodel = "hf.co/u/r"\n{draft}\n[models.b]\nhf-repo = "u/r"\nmodel-draft = "d.gguf"\n'
                    'hf-repo-draft = "u/d"\n')  # fmt: skip
    s = settings(config=str(file), model="a")
    assert (s.model, s.hf_repo, s.hf_repo_draft, s.model_draft) == (None, "u/r", "u/d", Path("d.gguf"))
    assert len(s.notes) == 2
    assert settings(config=str(file), model="b").model_draft == Path("d.gguf"), "a file there, not beside models.toml"


def test_what_is_on_the_disk_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf.co" / "u").mkdir(parents=True)
    (tmp_path / "hf.co" / "u" / "r").write_text("")
    assert settings(model="hf.co/u/r").model == Path("hf.co/u/r")
    assert hub_address("hf.co/u") is None
    assert hub_address("https://example.com/u/r") is None


def test_addresses_that_cannot_be_had_or_contradict() -> None:
    with pytest.raises(UsageError, match="takes files of the branch main, not of v2"):
        settings(model="https://hf.co/u/r/tree/v2")
    with pytest.raises(UsageError, match=r"-m/--model and -hf/--hf-repo: give one of them"):
        settings(model="hf.co/u/r", hf_repo="u/s")


def test_of_a_draft_and_its_repository_the_closer_one_counts(tmp_path: Path) -> None:
    """A file that models.toml names is none of the repository behind a flag, nor the other way round."""
    file = tmp_path / "models.toml"
    file.write_text('[models.a]\nmodel = "a.gguf"\nmodel-draft = "d.gguf"\nspec-type = "ngram-simple"\n'
                    '[models.b]\nmodel = "a.gguf"\nhf-repo-draft = "u/d"\n')  # fmt: skip
    s = settings(config=str(file), model="a", hf_repo_draft="u/e")
    assert (s.hf_repo_draft, s.model_draft, s.spec_type) == ("u/e", None, None)
    s = settings(config=str(file), model="a", model_draft="hf.co/u/e")
    assert (s.hf_repo_draft, s.model_draft, s.spec_type) == ("u/e", None, None)
    s = settings(config=str(file), model="b", model_draft="e.gguf")
    assert (s.hf_repo_draft, s.model_draft) == (None, Path("e.gguf"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "u/r"}, "-m/--model: u/r does not exist (did you mean -hf u/r?)"),
        ({"model": "u/r:Q4_K_M"}, "(did you mean -hf u/r:Q4_K_M?)"),
        ({"model": "m.gguf", "model_draft": "u/r"}, "-md/--model-draft: u/r does not exist (did you mean -hfd u/r?)"),
        ({"model": "qwen2.5:0.5b"}, "ollama show --modelfile NAME tells its file, -hf USER/REPO:QUANT downloads)"),
        ({"model": "fsat"}, "(names: demo, fast) (did you mean fast?)"),
        ({"model": "FAST"}, "(did you mean fast?)"),
    ],
)
def test_a_name_that_is_no_file_leads_on(smol: Path, tmp_path: Path, given: dict[str, str], words: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models.fast]\nmodel = "a.gguf"\n')
    with pytest.raises(FileError) as error:
        settings(config=str(file), **given)
    assert str(error.value).endswith(words)


def test_a_path_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for path in ("models/x", "./u/r", "~/r", "../r", "u/r.gguf", "/u/r", "a/b/c", "r"):
        assert not is_repo(path)
