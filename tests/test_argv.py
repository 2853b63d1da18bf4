"""The command line as llama.cpp's users type it."""

from __future__ import annotations

import pytest
from conftest import cli

from spec_cli.cli.argv import plain
from spec_cli.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["-n", "5"], ["--predict=5"]),
        (["--n-predict", "5"], ["--predict=5"]),
        (["--n_predict=5"], ["--predict=5"]),
        (["--predict=-1"], ["--predict=-1"]),
        (["-md", "x.gguf"], ["--model-draft=x.gguf"]),
        (["-p", "--a_b=c"], ["--prompt=--a_b=c"]),
        (["-p", ""], ["--prompt="]),
        (["--prompt=-n"], ["--prompt=-n"]),
        (["--temp", "-1"], ["--temp=-1"]),
        (["-no-cnv", "-e", "--no-escape", "-nr"], ["--raw", "--escape", "--no-escape", "--no-repack"]),
        (["-r", "a=b", "--stop=c d"], ["--stop=a=b", "--stop=c d"]),
    ],
)
def test_spellings(typed: list[str], meant: list[str]) -> None:
    assert plain(typed) == meant


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["-n5"], "unknown flag: -n5"),
        (["-pn", "5"], "unknown flag: -pn"),
        (["--spec-draft-max", "5"], "did you mean --spec-draft-n-max?"),
        (["--draft-max", "5"], "use --spec-draft-n-max"),
        (["--draft"], "the argument has been removed"),
        (["--spec-ngram-size-n", "3"], "use --spec-ngram-simple-size-n"),
        (["-n"], "-n: expected N"),
        (["--raw=yes"], "--raw: takes no value"),
        (["hello"], "unexpected argument: hello"),
    ],
)
def test_mistakes_are_named(typed: list[str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        plain(typed)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["-m", "x", "-p", "y z"], 2, "try spec-cli generate -m x -p 'y z'"),
        (["-m", "x", "--draft-max", "3"], 2, "the argument has been removed"),
        (["genrate"], 2, "unknown command: genrate"),
        (["generate", "--bogus"], 2, "unknown flag: --bogus"),
        (["generate", "-p", "x", "-n", "many"], 2, "-n/--predict: 'many' is not a whole number"),
        (["generate", "-p", "x", "-q", "-v"], 2, "exclude each other"),
        (["generate", "-p", "x", "-p", "y"], 2, "given twice"),
        (["generate", "-p", "x", "--stop", ""], 2, "an empty text would end every answer"),
        (["generate", "-p", "x", "--raw", "-sys", "y"], 2, "--raw leaves it out"),
        (["generate", "-p", "x", "-m", "no/such.gguf"], 3, "no/such.gguf does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(args: list[str], code: int, words: str) -> None:
    done = cli(*args)
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, len(lines), done.stdout) == (code, 1, b"")
    assert lines[0].startswith("error: ")
    assert words in lines[0]


def test_help_and_version_need_no_model() -> None:
    for args in ((), ("--help",), ("generate", "--help"), ("generate", "-m", "x", "-h"), ("--version",)):
        done = cli(*args)
        assert done.returncode == 0, args
        assert done.stdout
        assert done.stderr == b""
