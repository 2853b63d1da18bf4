"""The draft model's own promises: p_min, n_min, its context, vocabularies of other sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
from conftest import ask

from spec_cli.drafters.greedy import top_probability
from spec_cli.engine import Engine
from spec_cli.errors import FileError, UsageError

MORE = [*tiny.TEXTS, *(b"<%d>" % i for i in range(100))]
EXTRA = tiny.SIZE + 7  # an id that only the larger vocabulary has


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clock with 100 tokens more, that says an extra token after z and a after it; one that only says it."""
    folder = tmp_path_factory.mktemp("padded")
    tiny.clock(folder / "clock.gguf", {tiny.A + 25: EXTRA, EXTRA: tiny.A}, texts=MORE)
    tiny.clock(folder / "extra.gguf", always=EXTRA, texts=MORE)
    return folder


def test_a_target_with_more_tokens_than_its_draft(models: Path, padded: Path, engine: Callable[..., Engine]) -> None:
    """The extra id stands in the text that the draft model reads."""
    alone = ask(engine(padded / "clock.gguf", spec_type=("none",)), "uvw", predict=60)
    assert alone.text.startswith("xyz<7>abc")
    both = ask(engine(padded / "clock.gguf", model_draft=models / "clock.gguf", spec_draft_n_max=4), "uvw", predict=60)
    assert both.text == alone.text
    assert both.stats.total.accepted > 30


def test_a_draft_with_more_tokens_than_its_target(models: Path, padded: Path, engine: Callable[..., Engine]) -> None:
    """Its favourite is never guessed, however sure it is."""
    e = engine(models / "clock.gguf", model_draft=padded / "extra.gguf", spec_draft_n_max=4)
    answer = ask(e, "abc", predict=20)
    assert answer.text == "defghijklmnopqrstuvw"
    assert answer.stats.total.drafted > 0
    assert answer.stats.total.accepted == 0


def test_more_than_128_missing_tokens_are_refused(tmp_path: Path, models: Path, engine: Callable[..., Engine]) -> None:
    for n, fits in ((128, True), (129, False)):
        path = tiny.clock(tmp_path / f"{n}.gguf", texts=[*tiny.TEXTS, *(b"<%d>" % i for i in range(n))])
        if fits:
            assert ask(engine(models / "clock.gguf", model_draft=path), "abc", predict=3).text == "def"
        else:
            with pytest.raises(FileError, match=rf"{tiny.SIZE + 129} tokens where the target has {tiny.SIZE}"):
                engine(models / "clock.gguf", model_draft=path)


def test_short_drafts_are_thrown_away_below_n_min(models: Path, engine: Callable[..., Engine]) -> None:
    e = engine(models / "clock.gguf", model_draft=models / "clock.gguf", spec_draft_n_max=4, spec_draft_n_min=3)
    stats = ask(e, "abc", predict=21).stats
    assert stats.total.accepted_at == [4] * 4, "four whole drafts for the 20 tokens after the first"
    stats = ask(e, "abc", predict=4).stats
    assert stats.total.drafted == 0, "with three tokens left only two guesses would be of use"


def test_a_head_is_no_draft_model(shared: Path, smol: Path, engine: Callable[..., Engine]) -> None:
    with pytest.raises(UsageError, match="is made for draft-eagle3"):
        engine(smol, model_draft=shared / "models" / "smollm2-135m-eagle3.gguf", spec_type=("draft-simple",))
    with pytest.raises(FileError, match="is no language model but a draft head"):
        engine(shared / "models" / "smollm2-135m-eagle3.gguf")


def test_p_min_is_over_the_ten_likeliest_and_strict() -> None:
    """softmax over the top 10 logits only; equal is enough."""
    logits = np.zeros(1000, np.float32)
    logits[5] = 2.0
    token, probability = top_probability(logits)
    assert token == 5
    assert probability == pytest.approx(np.exp(2.0) / (np.exp(2.0) + 9), rel=1e-6)
    rng = np.random.default_rng(1)
    for _ in range(50):
        logits = rng.normal(0, 8, 5000).astype(np.float32)
        top = np.sort(logits)[::-1][:10]
        right = 1 / np.exp(top.astype(np.float64) - top[0]).sum()
        assert top_probability(logits) == (int(logits.argmax()), pytest.approx(right, rel=1e-5))


def test_an_unsure_draft_stops_guessing(models: Path, engine: Callable[..., Engine]) -> None:
    sure, unsure = (
        ask(engine(models / "plain.gguf", model_draft=models / "plain.gguf", spec_draft_p_min=p), "hello", predict=40)
        for p in (0.0, 0.9)
    )
    assert sure.text == unsure.text
    assert 0 < unsure.stats.total.drafted < sure.stats.total.drafted
