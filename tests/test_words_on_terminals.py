"""What a person sees of an answer on a terminal: whole words, where it was cut and why, that something goes on."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import tiny
from cases import generate, said
from conftest import cli
from terminal import Terminal

from spec_cli.cli import status
from spec_cli.cli.terminal import CUT

GREEDY = ("--temp", 0, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 2, "--spec-ngram-simple-size-m", 4)
TEMPLATE = ("--chat-template", "{{ messages[-1].content }}")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says "abcde fghij abcde ..." after an a, without an end."""
    chain = [*range(tiny.A, tiny.A + 5), tiny.byte(0x20), *range(tiny.A + 5, tiny.A + 10), tiny.byte(0x09), tiny.A]
    return tiny.clock(tmp_path_factory.mktemp("words") / "words.gguf", dict(pairwise(chain)), n_ctx=4096)


TEXT = "abcde fghij\t" * 300  # what it says after a tab


def whole(lines: list[str], columns: int, n: int) -> bool:
    """Whether these lines hold the first n characters of the text, no word in two parts."""
    assert all(len(line) <= columns for line in lines)
    return [word for line in lines for word in line.split()] == TEXT[1 : n + 1].split()


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_generate_breaks_no_word_and_says_where_and_why_it_was_cut(words: Path, tmp_path: Path, columns: int) -> None:
    args = (*GREEDY, "-n", 700, "--raw", "-p", "a")
    with Terminal(words, *args, home=tmp_path, columns=columns, lines=60, command="generate") as t:
        assert t.ended() == 0
        shown, numbers = t.text.split(f"{CUT}\n\ncut at 700 tokens (-n)\n")
        start, *lines = shown.split("\n")
        lines = lines if start.endswith(")") else lines[1:]
        assert whole(lines, columns, 700)
        assert all(len(line) <= columns for line in numbers.split("\n"))
        assert numbers.startswith("draft acceptance rate = 1.0")
    piped = generate(words, *args[2:])
    assert piped.stdout.decode() == TEXT[1:701] + "\n"
    assert said(piped)[1] == "cut at 700 tokens (-n)"


@pytest.mark.parametrize("color", ["off", "on"])
def test_chat_breaks_no_word_while_the_status_line_is_drawn(words: Path, tmp_path: Path, color: str) -> None:
    args = (*GREEDY, *TEMPLATE, "-n", 2500, "--color", color)
    with Terminal(words, *args, home=tmp_path, columns=60).start() as t:
        before = t.place
        t.enter("a")
        shown = "\n".join(t.lines[before + 1 :]).split(f"{CUT}\n\ncut at 2500 tokens (-n)\n[ Prompt")[0]
        assert whole(shown.split("\n"), 60, 2500)
        assert b"tokens a round" in t.raw  # it was drawn
        assert "tokens a round" not in t.text
        assert (b"\x1b[32m" in t.raw) == (color == "on")


def test_what_a_model_thinks_is_wrapped_too(tmp_path: Path) -> None:
    start, end = len(tiny.TEXTS), len(tiny.TEXTS) + 1
    texts, kinds = [*tiny.TEXTS, b"<think>", b"</think>"], [*tiny.KINDS, tiny.T.USER_DEFINED, tiny.T.USER_DEFINED]
    follow = dict(pairwise([*range(tiny.A, tiny.A + 7), tiny.byte(0x20), tiny.A])) | {start: tiny.A + 1}
    model = tiny.clock(tmp_path / "thinks.gguf", follow, texts=texts, kinds=kinds, n_ctx=2048)
    template = "{{ messages[-1].content }}{% if false %}</think>{% endif %}<think>"
    assert end == start + 1
    with Terminal(model, "--temp", 0, "-n", 700, "--chat-template", template, home=tmp_path, columns=40).start() as t:
        shown = t.enter("x").split("[Start thinking]\n")[1].split("\n[End thinking]")[0]
    lines = shown.split("\n")
    assert all(len(line) < 40 for line in lines)
    assert [word for line in lines for word in line.split()] == ("abcdefg " * 100)[1:701].split()


def test_plain_terminals_get_plain_lines(words: Path, tmp_path: Path) -> None:
    """--simple-io is for programs that read what a person would: they get the text as it is."""
    with Terminal(words, *GREEDY, *TEMPLATE, "-n", 300, "--simple-io", home=tmp_path, columns=60).start() as t:
        t.enter("a")
        assert TEXT[1:301].encode() in t.raw


def test_a_prompt_that_is_read_is_shown_and_gone(tmp_path: Path) -> None:
    """Before, a terminal stayed blank for as long as that took."""
    model = tiny.clock(tmp_path / "long.gguf", n_ctx=4096)
    args = ("--temp", 0, "-n", 3, "-ub", 32, "-p", tiny.alphabet(3000))
    with Terminal(model, *args, home=tmp_path, columns=100, command="generate") as t:
        assert t.ended() == 0
        assert re.search(rb"reading the prompt: \d+ of 3000 tokens", t.raw)
        assert "reading" not in t.text
        assert f"\nklm{CUT}\n\ncut at 3 tokens" in t.text
    with Terminal(model, *args, "-q", home=tmp_path, command="generate") as t:
        assert t.ended() == 0
        assert b"reading" not in t.raw


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_answer_that_goes_elsewhere_is_watched(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Standard error is a terminal, standard output a file: the pace is shown until the end, the file has the text."""
    model = tiny.clock(tmp_path / "long.gguf", n_ctx=4096)
    out = tmp_path / "out"
    args = ("--temp", 0, "-n", 2000, "-p", "a", "-o", out, *how)
    with Terminal(model, *args, home=tmp_path, columns=100, command="generate") as t:
        assert t.ended() == 0
        assert re.search(rb"\d+ tokens  [\d.]+ t/s", t.raw)
        assert "t/s" not in t.text
        assert CUT not in t.text
        assert "cut at 2000 tokens (-n)" in t.text
    assert tiny.alphabet(2001)[1:] in out.read_text()


def test_ctrl_c_ends_the_line_and_says_so_before_the_numbers(words: Path, tmp_path: Path) -> None:
    args = (*GREEDY, "--raw", "-p", "a", "-c", 4096)
    with Terminal(words, *args, home=tmp_path, columns=100, command="generate") as t:
        t.wait("abcde")
        t.type("\x03")
        assert t.ended() == 130
        assert "^C" not in t.text
        assert re.search(rf"{CUT}\n\ninterrupted\n(draft acceptance|speculation: )", t.text)
        assert t.text.count("interrupted") == 1
        assert t.text.split("\n")[-1].startswith("seed = ")


def test_a_job_in_the_background_is_not_stopped_by_the_terminal(words: Path, tmp_path: Path) -> None:
    """Only who is in front may change how a terminal shows keys."""
    args = ("-m", str(words), "-t", "1", "--temp", "0", "-n", "30", "--raw", "-p", "a")
    command = " ".join([sys.executable, "-m", "spec_cli", "generate", *args])
    with Terminal(words, home=tmp_path, columns=100) as t:
        t.child.close(force=True)
        import pexpect

        env = {**os.environ, "TERM": "xterm", "SPEC_CLI_CONFIG": ""}
        t.child = pexpect.spawn("bash", ["-mc", f"{command} & wait $!; echo code $?"], env=env, timeout=60)
        t.wait("code ")
        assert "code 0" in t.text


def test_why_an_answer_stopped_is_said_in_a_pipe_too(words: Path, models: Path) -> None:
    assert "cut at 1 token (-n)" in said(generate(words, "-n", 1, "-p", "a"))
    full = generate(models / "clock.gguf", "-c", 256, "-p", tiny.alphabet(250))
    assert "the context is full (256 tokens): the answer ends here (-c/--ctx-size)" in said(full)
    ended = generate(models / "clock_eos_m.gguf", "-p", "abc")
    assert not [line for line in said(ended) if "cut" in line or "full" in line]
    quiet = generate(words, "-n", 1, "-p", "a", "-q")
    assert quiet.stderr == b""


def test_a_script_with_n_is_not_told_so_after_each_turn(words: Path) -> None:
    done = cli("chat", "-m", words, "-t", 1, *GREEDY, *TEMPLATE, "-n", 3, stdin=b"a\na\n")
    assert not [line for line in said(done) if "cut" in line]


def test_a_model_that_loads_for_a_while_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SOON", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    screen = io.TextIOWrapper(io.BufferedWriter(io.FileIO(slave, "w")), write_through=True)
    monkeypatch.setattr(sys, "stderr", screen)
    told: list[str] = []
    for seconds, shown in ((0.3, b"loading the model"), (0.0, b"")):
        with status.loading(told.append, True) as say:
            time.sleep(seconds)
            say("a line")
        say("later")
        os.write(slave, b".")
        got = b""
        while not got.endswith(b"."):
            got += os.read(master, 1000)
        assert got == (shown + b"\r\x1b[K" + shown + b"\r\x1b[K." if shown else b".")
    assert told == ["a line", "later"] * 2
    with status.loading(told.append, False) as say:
        assert say == told.append
    screen.close()
    os.close(master)
