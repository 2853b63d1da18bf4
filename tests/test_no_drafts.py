"""Why nothing was drafted: a reason that is true, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from cases import generate, refused, said
from conftest import ask

from spec_cli.engine import Engine
from spec_cli.errors import UsageError
from spec_cli.settings import Settings

Make = Callable[..., Engine]


def sizes(n: int, m: int) -> dict[str, Any]:
    return {"spec_type": ("ngram-simple",), "spec_ngram_simple_size_n": n, "spec_ngram_simple_size_m": m}


def test_sizes_with_which_nothing_is_ever_guessed_are_refused(models: Path) -> None:
    """The rule drops drafts shorter than its pattern; the text would be blamed for it."""
    flags = ("--spec-ngram-simple-size-n", 12, "--spec-ngram-simple-size-m", 4)
    line = refused(generate(models / "clock.gguf", "-p", "abc", *flags), 2)
    assert line == (
        "error: --spec-ngram-simple-size-m: 4 is below --spec-ngram-simple-size-n 12: ngram-simple would never guess"
    )
    done = generate(models / "clock.gguf", "-p", "abc", "-n", 3, *flags, "--spec-type", "none")
    assert (done.returncode, done.stdout) == (0, b"def\n")
    settings = Settings(
        model=models / "clock.gguf", ctx_size=256, threads=1, **{**sizes(12, 4), "spec_type": ("none",)}
    )
    with Engine(settings, free=True) as made, pytest.raises(UsageError, match="never guess"):
        ask(made, "abc", spec_type=("ngram-simple",))


@pytest.mark.parametrize("n_predict", [3, 20])
def test_a_text_that_is_too_short_to_look_is_said_to_be_so_to_the_token(
    models: Path, engine: Make, n_predict: int
) -> None:
    """The longest prompt that gives the reason, and those above it."""
    made = engine(models / "clock.gguf", **sizes(2, 24))
    for length in range(20, 33):
        answer = ask(made, tiny.alphabet(length), predict=n_predict)
        looked_at = length + n_predict - 2  # the last token comes with no guess to make
        if looked_at <= 2 + 24 + 2:
            assert not answer.stats.total.drafted
            assert made.why_nothing_drafted(answer) == (
                "no drafts, ngram-simple with n 2 and m 24 needs a text of more than 28 tokens "
                "(--spec-ngram-simple-size-n, --spec-ngram-simple-size-m)"
            )
        elif not answer.stats.total.drafted:
            assert made.why_nothing_drafted(answer) == "ngram-simple found no repeats"
            assert looked_at < 26 + 2 + 2


@pytest.mark.parametrize("n_predict", [1, 2])
def test_an_answer_without_room_for_a_guess_blames_no_drafter(models: Path, engine: Make, n_predict: int) -> None:
    made = engine(models / "clock.gguf", **sizes(2, 4))
    answer = ask(made, tiny.alphabet(60), predict=n_predict)
    assert made.why_nothing_drafted(answer) == "the answer ended before the first draft"


def test_nothing_asked_is_said_in_one_line(models: Path) -> None:
    """No table of zeros."""
    done = generate(models / "clock.gguf", "-p", "abc", "-n", 0, "--raw")
    assert (done.returncode, done.stdout.strip()) == (0, b"")
    assert said(done)[1:] == ["cut at 0 tokens (-n)"]
