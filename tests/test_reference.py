"""README's table of flags is the code's. `python tests/test_reference.py` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cases import environment
from conftest import cli

from spec_cli.cli.options import USUAL, flag_table
from spec_cli.cli.refused import REFUSED
from spec_cli.settings import flags

README = Path(__file__).parents[1] / "README.md"
PLACE = re.compile(r"(<!-- flags -->\n).*(<!-- /flags -->)", re.DOTALL)


def with_table(text: str) -> str:
    return PLACE.sub(lambda m: f"{m[1]}{flag_table()}\n{m[2]}", text)


def test_the_table_of_flags_is_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "python tests/test_reference.py"


@pytest.mark.parametrize("command", ["generate", "batch"])
def test_help_is_short_and_help_all_is_whole(command: str) -> None:
    """The usual flags in panels at 80 columns; every flag of the command with --help-all."""
    short, whole = (cli(command, flag).stdout.decode() for flag in ("--help", "--help-all"))
    for text in (short, whole):
        assert max(map(len, text.splitlines())) <= 80
        for panel in ("Model:", "Context and speed:", "Sampling:", "Speculation:", "Output:"):
            assert panel in text
    shown = [name for name, flag in flags(command).items() if re.search(rf"{re.escape(flag.name)}(?![\w-])", short)]
    assert 30 <= len(shown) <= 45
    assert all(name in USUAL or flags()[name].commands for name in shown if name not in ("seed",))
    for flag in flags(command).values():
        assert re.search(rf"{re.escape(flag.name)}(?![\w-])", whole), flag.name
    assert f"--help-all shows all {len(flags(command))} flags." in short


def test_no_flag_is_both_known_and_refused() -> None:
    spellings = {name for flag in flags().values() for name in (*flag.names, *flag.off)}
    assert not spellings & set(REFUSED)
    assert len(REFUSED) > 80
    for flag in ("--port", "-mu", "--mlock"):
        done = cli("generate", "-p", "abc", flag, "x")
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"{flag}: llama.cpp has it, spec-cli has not: {REFUSED[flag]}" in done.stderr.decode()


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
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
