"""What people type from habit of other tools is understood, or the refusal leads somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from spec_cli.batch.lines import Line
from spec_cli.batch.rows import parse
from spec_cli.cli import run
from spec_cli.cli.argv import ALONE, HELP, HELP_ALL, NOTE, REMOVED, plain
from spec_cli.cli.habits import COMMANDS, MEANT, MET, NAMES
from spec_cli.cli.refused import REFUSED
from spec_cli.cli.speculative_config import METHODS, SPECULATIVE_CONFIG, translated
from spec_cli.config import resolve
from spec_cli.errors import UsageError, did_you_mean
from spec_cli.settings import TYPE_ALIASES, flags, read_types

OURS = {name for flag in flags().values() for name in (*flag.names, *flag.off)}
OURS |= {*HELP, HELP_ALL, *ALONE, NOTE, SPECULATIVE_CONFIG, "--install-completion", "--show-completion"}
FLAG = re.compile(r"(?<![\w\-/.*+])--?[a-zA-Z](?:[\w*-]*[\w*])?(?![\w-])")


def error_of(*args: str, command: str = "generate") -> str:
    with pytest.raises(UsageError) as error:
        plain(args, command)
    return str(error.value)


def hints() -> list[str]:
    """Everything that a refusal of a flag or command may say instead."""
    return [
        *REMOVED.values(),
        *REFUSED.values(),
        *MET.values(),
        *(" ".join(m) for m in MEANT.values()),
        *COMMANDS.values(),
    ]


# ---- refusals and hints


def test_a_hint_names_flags_that_there_are() -> None:
    """A hint that leads to a refusal is worse than none."""
    named = [flag for hint in hints() for flag in FLAG.findall(hint)]
    assert len(named) > 20
    assert [flag for flag in named if flag not in OURS] == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--draft-max", "16"], "use --spec-draft-n-max"),
        (["--draft-min", "1"], "use --spec-draft-n-min"),
        (["--spec-ngram-size-n", "3"], "use --spec-ngram-simple-size-n"),
        (["--spec-ngram-size-m", "3"], "use --spec-ngram-simple-size-m"),
        (["--spec-ngram-min-hits", "1"], "use --spec-ngram-simple-min-hits"),
        (["--spec-default"], "ngram-mod cannot be run yet: use --spec-type ngram-simple"),
        (["--no-perf"], "use -q"),
    ],
)
def test_a_refused_flag_says_what_to_write(typed: list[str], words: str) -> None:
    line = error_of(*typed)
    assert line.endswith(words)


def test_a_flag_of_another_tool_is_a_hint_to_ours() -> None:
    for theirs, ours in NAMES.items():
        command = (next(f for f in flags().values() if ours in f.names).commands or ("generate",))[0]
        assert error_of(theirs, "1", command=command) == f"unknown flag: {theirs} (did you mean {ours}?)"


def test_a_far_word_is_not_suggested() -> None:
    """`--compare` is not `--temperature`, and no flag for tokens is a token for the hub."""
    for flag in ("--compare", "--bench", "--tune", "--foo", "--xyz"):
        assert error_of(flag) == f"unknown flag: {flag}"
    assert did_you_mean("TEMPRATURE", ["temperature"]) == " (did you mean temperature?)"


# ---- aliases


@pytest.mark.parametrize("name", ["--max-tokens", "--max-new-tokens", "--max_tokens"])
def test_other_names_of_n(name: str) -> None:
    assert plain([name, "4"]) == ["--predict=4"]


def test_num_speculative_tokens_is_n_max() -> None:
    assert plain(["--num-speculative-tokens", "5"], "batch") == ["--spec-draft-n-max=5"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("draft", ("draft-simple",)), ("eagle3", ("draft-eagle3",)), ("mtp", ("draft-mtp",)), ("NONE", ("none",)),
        ("off", ("none",)), ("Ngram,DRAFT", ("ngram-simple", "draft-simple")), ("NGRAM-simple", ("ngram-simple",)),
    ],
)  # fmt: skip
def test_short_names_of_types_mean_the_long_ones(typed: str, meant: tuple[str, ...]) -> None:
    """Whatever their case, from every place: all go through one reader."""
    assert read_types(typed) == meant
    assert not set(TYPE_ALIASES) & set(TYPE_ALIASES.values())


def test_a_type_has_one_name_wherever_it_was_set(tmp_path: Path) -> None:
    """Flag, environment, models.toml, a row of a batch."""
    file = tmp_path / "models.toml"
    file.write_text('[models.a]\nmodel = "a.gguf"\nspec-type = ["Draft", "NGRAM"]\n')
    env = {"SPEC_CLI_CONFIG": str(file)}
    assert resolve({"model": "a"}, env).spec_type == ("draft-simple", "ngram-simple")
    assert resolve({"model": "a", "spec_type": "OFF"}, env).spec_type == ("none",)
    assert resolve({"model": "x.gguf"}, {**env, "LLAMA_ARG_SPEC_TYPE": "eagle3"}).spec_type == ("draft-eagle3",)
    row = parse(Line(1, b'{"prompt": "a", "spec_type": "MTP"}', 0), "jsonl")
    assert row.values == {"spec_type": ("draft-mtp",)}


# ---- wishes that are met already, and other spellings


@pytest.mark.parametrize("flag", MET)
def test_a_wish_that_is_met_is_accepted_with_a_line(flag: str) -> None:
    assert plain([*flag.split("="), "-n", "4"]) == [f"{NOTE}={flag}: met already: {MET[flag]}", "--predict=4"]


@pytest.mark.parametrize("flag", MEANT)
def test_another_spelling_is_taken_with_a_line(flag: str) -> None:
    note, *rest = plain([flag, "-n", "4"])
    assert note == f"{NOTE}={flag}: taken as {' '.join(MEANT[flag])}"
    assert rest == [*plain(MEANT[flag]), "--predict=4"]


def test_what_is_met_takes_no_value() -> None:
    assert error_of("--jinja=yes") == "--jinja: takes no value, 'yes' was given"
    assert error_of("--no-mmap=1") == "--no-mmap: takes no value, '1' was given"
    assert "llama.cpp has it" in error_of("--reasoning-format", "deepseek")
    assert "llama.cpp has it" in error_of("--fit", "on")


def test_a_command_that_has_the_flag_itself_takes_it() -> None:
    assert plain(["-st", "--no-context-shift"], "chat") == ["--single-turn", "--no-context-shift"]


Told = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Told:
    """A command line in this process: its exit code, standard output and the lines of standard error."""
    for name in [flag.env for flag in flags().values() if flag.env]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPEC_CLI_CONFIG", "")

    def one(*args: object) -> tuple[int, str, list[str]]:
        code = run(list(map(str, args)))
        out, errors = capfdbinary.readouterr()
        return code, out.decode(), errors.decode().splitlines()

    return one


@pytest.mark.parametrize("command", ["generate", "chat", "batch"])
def test_the_line_is_said_unless_quiet(told: Told, models: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "in.txt").write_text("abc\n")
    text = (
        ("-f", tmp_path / "in.txt")
        if command != "chat"
        else ("--chat-template", "{{messages[0].content}}", "-p", "abc", "-st")
    )
    how = (command, "-m", models / "clock.gguf", *text, "-n", 3, "-t", 1, "--temp", 0, "--jinja", "--no-mmap")
    code, out, lines = told(*how)
    assert code == 0
    assert "def" in out
    assert "--jinja: met already: templates are always Jinja" in lines
    assert "--no-mmap: taken as --load-mode none" in lines
    code, again, lines = told(*how, "-q")
    assert (code, lines) == (0, [])
    assert again == out or command == "batch", "a batch writes times"


def test_more_threads_than_cores_are_mentioned_if_asked_for(told: Told, models: Path) -> None:
    from spec_cli.machine import usable_cores

    cores = usable_cores()
    how = ("generate", "-m", models / "clock.gguf", "-p", "abc", "-n", 1)
    words = f"more threads than the {cores} core{'s' * (cores != 1)} that this process may use"
    (line,) = [line for line in told(*how, "-t", 1, "-tb", 64)[2] if "threads" in line]
    assert line == f"-tb 64: {words}"
    assert not any("threads" in line for line in told(*how, "-t", 1)[2])


# ---- vLLM's --speculative-config


@pytest.mark.parametrize(
    ("config", "meant"),
    [
        (
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
            "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 5 --spec-draft-n-max 5",
        ),
        (
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 5, "prompt_lookup_min": 2},
            "--spec-type ngram-simple --spec-ngram-simple-size-n 5 --spec-ngram-simple-size-m 5 --spec-draft-n-max 3",
        ),
        ({"method": "ngram"}, "--spec-type ngram-simple --spec-ngram-simple-size-n 5"),
        ({"model": "[ngram]", "prompt_lookup_min": 3}, "--spec-type ngram-simple --spec-ngram-simple-size-n 3"),
        ({"model": "d.gguf", "num_speculative_tokens": 5}, "-md d.gguf --spec-draft-n-max 5"),
        ({"method": "draft_model", "model": "u/r", "num_speculative_tokens": 2}, "-hfd u/r --spec-draft-n-max 2"),
        ({"method": "eagle3", "model": "e.gguf"}, "--spec-type draft-eagle3 -md e.gguf"),
        ({"method": "mtp", "num_speculative_tokens": 1}, "--spec-type draft-mtp --spec-draft-n-max 1"),
        ({"method": "qwen3_next_mtp", "model": None}, "--spec-type draft-mtp"),
    ],
)
def test_vllms_config_is_translated_and_shown(config: dict[str, object], meant: str) -> None:
    note, *rest = plain([SPECULATIVE_CONFIG, json.dumps(config), "--temp", "0"])
    assert note == f"{NOTE}=--speculative-config: {meant}"
    assert rest == [*plain(meant.split()), "--temp=0"]


def test_a_file_that_looks_like_a_repository_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "r").write_text("")
    assert translated('{"model": "u/r"}') == ["-md", "u/r"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", f"neither a method nor a model (methods: {', '.join(METHODS)})"),
        ('{"method": "medusa"}', "method 'medusa' cannot be done here"),
        ('{"method": "eagle", "model": "x"}', "method 'eagle' cannot be done here"),
        ('{"method": "ngram", "quantization": "fp8"}', "'quantization' cannot be done here (keys: method,"),
        ('{"model": "x", "num_speculative_tokens": "5"}', 'num_speculative_tokens: "5" is not a number from 1'),
        ('{"model": "x", "num_speculative_tokens": 0}', "num_speculative_tokens: 0 is not a number from 1"),
        ('{"model": "x", "num_speculative_tokens": true}', "num_speculative_tokens: true is not a number"),
        ('{"method": 5}', "method: 5 is not a text"),
    ],
)
def test_what_vllms_config_asks_in_vain_is_named(text: str, words: str) -> None:
    line = error_of(SPECULATIVE_CONFIG, text)
    assert line.startswith("--speculative-config: ")
    assert words in line


# ---- a flag does not eat the next flag


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["-fa", "-n", "4"], "-fa: expected one of on, off, auto; -n is a flag (-fa on turns it on)"),
        (["-n", "4", "-fa"], "-fa: expected one of on, off, auto (-fa on turns it on)"),
        (["--temp", "-p", "hi"], "--temp: expected T; -p is a flag"),
        (["-p", "--temp", "0"], "-p: expected TEXT; --temp is a flag (--prompt=--temp passes it as it is)"),
        (
            ["-p", "--n_predict=3"],
            "-p: expected TEXT; --n_predict=3 is a flag (--prompt=--n_predict=3 passes it as it is)",
        ),
        (["-m", "--jinja"], "-m: expected one of GGUF, NAME; --jinja is a flag"),
        (["-c", "--port"], "-c: expected N; --port is a flag"),
        ([SPECULATIVE_CONFIG, "-n"], "--speculative-config: expected JSON; -n is a flag"),
    ],
)
def test_a_flag_does_not_eat_the_next_one(typed: list[str], line: str) -> None:
    assert error_of(*typed) == line


def test_what_only_looks_like_a_flag_is_a_value() -> None:
    assert plain(["-n", "-1", "-p", "-n is a flag", "-f", "-"]) == ["--predict=-1", "--prompt=-n is a flag", "--file=-"]
    assert plain(["-l", "3-inf", "-p", "-nosuch"]) == ["--logit-bias=3-inf", "--prompt=-nosuch"]


def test_a_second_prompt_is_an_error(told: Told) -> None:
    """Neither text vanishes; other flags may be repeated, the last one counts, as in llama.cpp."""
    code, out, (line,) = told("generate", "-p", "one", "-p", "two")
    assert (code, out) == (2, "")
    assert line.startswith("error: -p/--prompt: given twice")
    assert "no/such.gguf does not exist" in told("generate", "-m", "x", "-m", "no/such.gguf", "-p", "x")[2][0]


# ---- commands


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("run", "spec-cli generate -m MODEL"), ("list", "spec-cli models list"), ("serve", "no server"),
        ("pull", "-hf USER/REPO"), ("ps", "no server"), ("rm", "-m FILE.gguf"), ("genrate", "did you mean generate?"),
        ("xyz", "commands: generate, chat, batch, models"),
    ],
)  # fmt: skip
def test_a_command_of_another_tool_names_ours(told: Told, typed: str, words: str) -> None:
    code, out, (line,) = told(typed, "x")
    assert (code, out) == (2, "")
    assert line.startswith(f"error: unknown command: {typed} (")
    assert words in line
