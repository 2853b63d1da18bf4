"""--color: who guessed which part of the answer, in colours that leave the text alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from cases import generate, on_terminal, said
from conftest import ask, guess_with
from hypothesis import given, strategies as st
from test_lossless import Scripted

from spec_cli.engine import Engine
from spec_cli.settings import Settings
from spec_cli.text import TextStream
from spec_cli.tokens import Kind

GREEN, YELLOW, END = "\x1b[32m", "\x1b[33m", "\x1b[0m"
DRAFT = ("--spec-draft-n-max", 3, "--temp", 0, "-t", 1)


def test_accepted_guesses_and_corrections_have_their_colours(models: Path) -> None:
    model = models / "clock.gguf"
    right = generate(model, "-md", model, *DRAFT, "-p", "abc", "-n", 9, "--color", "on")
    assert (
        right.stdout.decode() == f"d{GREEN}e{END}{GREEN}f{END}{GREEN}g{END}h{GREEN}i{END}{GREEN}j{END}{GREEN}k{END}l\n"
    )
    assert any(line.startswith("colours: green") for line in said(right))
    wrong = generate(model, "-md", models / "const_j.gguf", *DRAFT, "-p", "abc", "-n", 4, "--color", "on")
    assert wrong.stdout.decode() == f"d{YELLOW}e{END}{YELLOW}f{END}g\n"


def test_auto_colours_terminals_that_can(models: Path) -> None:
    model = models / "clock.gguf"
    args = ("-m", model, "-md", model, *DRAFT, "-p", "abc", "-n", 9, "--color", "auto")
    for env, colored in (
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ):
        seen = on_terminal("stdout", *args, env=env)[1].decode()
        assert (GREEN in seen) == colored
        assert re.sub("\x1b\\[[0-9]+m", "", seen) == "defghijkl\n"
    assert generate(model, *args[2:]).stdout == b"defghijkl\n"
    assert "colours" not in "".join(said(generate(model, *args[2:])))
    assert b"\x1b" not in on_terminal("stdout", *args[:-2], env={"TERM": "xterm"})[1], "none unless asked"


@given(st.lists(st.tuples(st.binary(max_size=4), st.sampled_from(["plain", "accepted", "corrected"])), max_size=12))
def test_marks_never_change_the_text(pieces: list[tuple[bytes, Kind]]) -> None:
    """Whatever the bytes: the same text as without kinds, each piece after its mark."""
    parts: list[tuple[str, str]] = []
    kind = ""

    def mark(new: Kind) -> None:
        nonlocal kind
        kind = new

    stream = TextStream(["ab"], lambda text: parts.append((kind, text)), mark)
    plain = TextStream(["ab"], lambda text: None)
    for piece, of in pieces:
        ended = stream.feed(piece, of)
        assert plain.feed(piece) == ended
        if ended:
            break
    stream.close()
    plain.close()
    assert "".join(text for _, text in parts) == stream.whole == plain.whole
    assert all(of for of, _ in parts)


@pytest.mark.parametrize("kind", ["oracle", "wrong", "mixed"])
def test_the_kinds_are_those_of_the_counters(models: Path, kind: str) -> None:
    with Engine(
        Settings(model=models / "plain.gguf", threads=1, ctx_size=256, temp=0.0, spec_ngram_simple_size_n=48)
    ) as engine:
        truth = ask(engine, "hello", predict=40).tokens
        guess_with(engine, Scripted(kind, truth), n_max=4)
        engine.settings = replace(engine.settings, predict=40)
        kinds: list[Kind] = []
        answer = engine.generate(
            engine.vocab.tokenize(b"hello", add_special=True, parse_special=True), mark=kinds.append
        )
        assert answer.tokens == truth
        assert kinds.count("accepted") == answer.stats.total.accepted
        assert len(kinds) == 40
        assert (kinds.count("corrected") > 0) == (kind != "oracle")
        assert tiny.A > 0
