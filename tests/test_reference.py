"""The page of flags is the code's. `python tests/test_reference.py` writes it anew."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
from cases import environment
from conftest import cli

from spec_cli.cli.argv import ALONE, HELP, HELP_ALL, REMOVED, plain
from spec_cli.cli.docs import PAGES, page
from spec_cli.cli.habits import MEANT, MET, NAMES
from spec_cli.cli.options import USUAL, flag_table
from spec_cli.cli.refused import REFUSED
from spec_cli.config import resolve
from spec_cli.settings import Settings, flags, is_list, is_switch, kind_of
from spec_cli.values import read

ROOT = Path(__file__).parents[1]
OTHERS = {  # of commands and programs that stand beside them
    "--version", "--list-devices", "--install-completion", "--mtp", "--no-mtp", "--target-model-dir", "--only",
    "--speculative-config",
    *MEANT, *MET, *NAMES,
}  # fmt: skip
PAGE = ROOT / "spec_cli" / "docs" / "flags.md"


def with_table(text: str) -> str:
    return f"{text.partition('| flag |')[0]}{flag_table()}\n"


def test_the_page_of_flags_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "python tests/test_reference.py"


def test_docs_prints_every_page_and_knows_no_other() -> None:
    listed = cli("docs").stdout.decode()
    assert sorted(path.stem for path in PAGE.parent.glob("*.md")) == sorted(PAGES)
    for name in PAGES:
        assert page(name).encode() == (PAGE.parent / f"{name}.md").read_bytes()
        assert re.search(rf"(?m)^{name} ", listed)
    assert cli("docs", "flags").stdout == PAGE.read_bytes()
    done = cli("docs", "flag")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"error: docs: there is no page 'flag' (pages: {', '.join(PAGES)})\n"


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 250
    headings = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"(?m)^#+ (.*)$", text)}
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("#"):
            assert link[1:] in headings, link
        elif "://" not in link:
            assert (ROOT / link).is_file(), link


def test_flags_named_in_the_documentation_are_flags() -> None:
    """In code on README and the pages: known here, refused by name, or of another program named beside it."""
    known = {name for flag in flags().values() for name in (*flag.names, *flag.off)} | {*HELP, HELP_ALL, *OTHERS}
    for path in (ROOT / "README.md", *PAGE.parent.glob("*.md")):
        for code in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
            if re.search("python |pip |CMAKE_ARGS|xargs|ollama|xcode", code):
                continue
            for word in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", code):
                assert word in known or word in REFUSED, f"{path.name}: {word} in {code}"


@pytest.mark.parametrize("command", ["generate", "chat", "batch"])
def test_help_is_short_and_help_all_is_whole(command: str) -> None:
    """The usual flags in panels at 80 columns; every flag of the command with --help-all."""
    short, whole = (cli(command, flag).stdout.decode() for flag in ("--help", "--help-all"))
    for text in (short, whole):
        assert max(map(len, text.splitlines())) <= 80
        for panel in ("Model:", "Context and speed:", "Sampling:", "Speculation:", "Output:"):
            assert panel in text
    shown = [name for name, flag in flags(command).items() if re.search(rf"{re.escape(flag.name)}(?![\w-])", short)]
    assert 30 <= len(shown) <= 47
    assert all(name in USUAL or flags()[name].commands for name in shown if name not in ("seed",))
    for flag in flags(command).values():
        assert re.search(rf"{re.escape(flag.name)}(?![\w-])", whole), flag.name
    assert f"--help-all shows all {len(flags(command))} flags." in short


def test_no_flag_is_both_known_and_refused() -> None:
    spellings = {name for flag in flags().values() for name in (*flag.names, *flag.off)}
    everywhere = {name for flag in flags().values() if not flag.commands for name in (*flag.names, *flag.off)}
    tables = ({*REFUSED}, {*REMOVED}, {*MEANT}, {*HELP, *ALONE}, {*NAMES})
    for one, other in combinations((spellings, *tables), 2):
        assert not one & other
    for table in (everywhere, *tables):
        assert not table & {*MET}
    assert len(REFUSED) > 80
    for flag in ("--port", "-mu", "--rpc"):
        done = cli("generate", "-p", "abc", flag, "x")
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"{flag}: llama.cpp has it, spec-cli has not: {REFUSED[flag]}" in done.stderr.decode()


def test_every_flag_of_llama_cpps_tools_is_known_or_refused_by_name() -> None:
    """llama_flags.txt: what llama-server, llama-completion and llama-speculative-simple list (commit 0c1e57098)."""
    theirs = (Path(__file__).parent / "llama_flags.txt").read_text().split()
    ours = {name for flag in flags().values() for name in (*flag.names, *flag.off)}
    assert len(theirs) > 400
    assert [name for name in theirs if name not in ours | {*REFUSED, *REMOVED, *MET, *MEANT, *HELP, *ALONE}] == []
    assert len(ours & set(theirs)) > 180


SAMPLES: dict[str, object] = {
    "model": "word.gguf", "gpu_layers": 7, "gpu_layers_draft": "all", "device": "CPU", "device_draft": "CPU",
    "tensor_split": "3,1",
    "override_tensor": ["a=CPU"], "override_tensor_draft": ["a=CPU"], "override_kv": ["a=int:1"], "lora": ["a.gguf"],
    "lora_scaled": ["a.gguf:0.5"], "parallel": 3, "flash_attn": "on", "stop": ["x"], "samplers": "top_k;temperature",
    "sampler_seq": "kt", "dry_sequence_breaker": ["x"], "logit_bias": ["3+1"], "spec_type": "none", "temp": 0.25,
}  # fmt: skip


def sample(name: str) -> object:
    """A value that is allowed and is not the default."""
    flag, default = flags()[name], getattr(Settings(), name)
    if name in SAMPLES:
        return SAMPLES[name]
    if is_switch(name):
        return not default
    if flag.choices:
        return next(choice for choice in flag.choices if choice != default)
    if kind_of(name) in (int, float):
        low, high = flag.low or 0, flag.high or 9
        return next(n for n in (kind_of(name)(v) for v in (3, 1, 0.5, low)) if low <= n <= high and n != default)
    return "word"


@pytest.mark.parametrize("name", flags())
def test_a_flag_means_the_same_from_every_place(tmp_path: Path, name: str) -> None:
    """Each spelling on the command line, the environment variable, each key of models.toml."""
    flag, value = flags()[name], sample(name)
    command = (flag.commands or ("generate",))[0]
    text = value if isinstance(value, str) else value[0] if isinstance(value, list) else f"{value}"
    model = {} if name in ("model", "hf_repo", "config") else {"model": "m.gguf"}
    right = read(name, value, "")
    if name == "config":
        (tmp_path / "word").write_text("")
        text, right = str(tmp_path / "word"), tmp_path / "word"

    def got(given: dict[str, object], env: dict[str, str]) -> object:
        settings = resolve({**model, **given}, {"SPEC_CLI_CONFIG": "", **env})
        assert name in settings.origins or name == "config"
        return getattr(settings, name)

    for spelling in flag.off if is_switch(name) and value is False else flag.names:
        (word,) = plain([spelling] if is_switch(name) else [spelling, str(text)], command)
        assert word == (
            f"{flag.name}={text}" if not is_switch(name) else flag.name if value else f"--no-{flag.name[2:]}"
        )
    assert got({name: value if is_switch(name) else [text] if is_list(name) else str(text)}, {}) == right
    if flag.env and name != "config":
        assert got({}, {flag.env: str(text).lower() if is_switch(name) else str(text)}) == right
    for key in flag.keys:
        for table in ("defaults", "models.m"):
            own = "" if name in ("model", "hf_repo") else 'model = "m.gguf"\n'
            file = tmp_path / "models.toml"
            file.write_text(f"[{table}]\n{own if table != 'defaults' else ''}{key} = {json.dumps(value)}\n")
            asked = {} if table == "defaults" or (name == "hf_repo" and table == "defaults") else {"model": "m"}
            settings = resolve({**(model if table == "defaults" else asked)}, {"SPEC_CLI_CONFIG": str(file)})
            found = getattr(settings, name)
            assert found == (tmp_path / right if isinstance(right, Path) else right), (table, key)


@pytest.mark.long
def test_the_effect_of_every_flag_is_looked_at_somewhere() -> None:
    """Some test outside this file uses it: its field, one of its spellings, or its name in a row."""
    here = Path(__file__).parent
    text = "".join(p.read_text() for p in [*here.glob("test_*.py"), *here.glob("peer/*.json")] if p != Path(__file__))
    for name, flag in flags().items():
        words = [rf"\b{name}=", rf'"{name}"', *(rf'"{key}"' for key in flag.row_keys)]
        words += [rf"(?<![\w-]){re.escape(spelling)}(?![\w-])" for spelling in (*flag.names, *flag.off)]
        assert re.search("|".join(words), text), name


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("spec-cli gen", "generate"),
        ("spec-cli generate --spec-ty", "--spec-type"),
        ("spec-cli generate --spec-type ngr", "ngram-simple"),
        ("spec-cli generate --model mi", "mine"),
        ("spec-cli batch --format js", "jsonl"),
        ("spec-cli models sh", "show"),
    ],
)
def test_the_shell_completes_flags_words_and_model_names(tmp_path: Path, words: str, offered: str) -> None:
    """As bash and fish ask for it."""
    config = tmp_path / "models.toml"
    config.write_text('[models.mine]\nmodel = "a.gguf"\n')
    ask = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "SPEC_CLI_CONFIG": str(config)}
    assert "_SPEC_CLI_COMPLETE" not in environment()
    done = cli(env={**ask, "_SPEC_CLI_COMPLETE": "complete_bash"})
    assert offered in done.stdout.decode().split()
    fish = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args", **ask}
    assert offered in cli(env={**fish, "_SPEC_CLI_COMPLETE": "complete_fish"}).stdout.decode().split()


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
