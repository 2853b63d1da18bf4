"""draft-mtp and draft-eagle3: the text is plain decoding's, and every guess is what numpy makes of the same weights."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy_heads
import pytest
import tiny_heads
from conftest import ask
from hypothesis import HealthCheck, given, settings, strategies as st
from test_batch_rows import run, told

from spec_cli.contracts import Draft, Live
from spec_cli.drafters.draft_head import MOST_UNREAD, DraftHead
from spec_cli.engine import Engine
from spec_cli.llama.session import Session
from spec_cli.settings import Settings

EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "cache_type_k_draft": "f32", "cache_type_v_draft": "f32"}
SMALL: dict[str, Any] = {"threads": 1, "ctx_size": 512, "flash_attn": 0, "raw": True, "temp": 0.0, **EXACT}
CLOSE = 0.02  # logits that are nearer to one another may change places by rounding


@dataclass(frozen=True)
class Pair:
    """A target and the file of its head; None: its own MTP layers."""

    target: Path
    head: Path | None

    def settings(self, **more: Any) -> Settings:
        return Settings(**{"model": self.target, "model_draft": self.head, **SMALL, **more})

    @property
    def n_heads(self) -> int:
        return 3 if self.target.name.startswith("mimo-3") else 8


MODES = ["mimo", "mimo-3", "mimo-window", "mimo-file", "gemma4", "eagle3", "eagle3-own", "qwen35"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """One block, three blocks, a block with a window, one in a file of its own; an assistant that looks into its
    target's memory; EAGLE-3 with all from its target and with all of its own; a block on a hybrid model.
    """
    at = tmp_path_factory.mktemp("heads")
    llama = tiny_heads.llama(at / "llama.gguf")
    own = {"own_embedding": True, "width": 48, "target_layers": (1, 2, 0), "norm_before_fc": True}
    return {
        "mimo": Pair(tiny_heads.mimo2(at / "mimo.gguf"), None),
        "mimo-3": Pair(tiny_heads.mimo2(at / "mimo-3.gguf", heads=3), None),
        "mimo-window": Pair(tiny_heads.mimo2(at / "mimo-window.gguf", window=8), None),
        "mimo-file": Pair(
            tiny_heads.mimo2(at / "trunk.gguf", part="trunk"), tiny_heads.mimo2(at / "head.gguf", part="head")
        ),
        "gemma4": Pair(tiny_heads.gemma4(at / "gemma4.gguf"), tiny_heads.gemma4_assistant(at / "assistant.gguf")),
        "eagle3": Pair(llama, tiny_heads.eagle3(at / "eagle3.gguf", d2t=False, own_output=False)),
        "eagle3-own": Pair(llama, tiny_heads.eagle3(at / "eagle3-own.gguf", **own)),
        "qwen35": Pair(tiny_heads.qwen35(at / "qwen35.gguf"), None),
    }


@pytest.fixture(params=MODES)
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    """Each mode in turn."""
    return pairs[request.param]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[array[int], list[int]]]:
    """Every draft of every head: the text before it, its guesses."""
    seen = []
    draft = DraftHead.draft

    def spy(self: DraftHead, live: Sequence[Live]) -> list[Draft]:
        drafts = draft(self, live)
        seen.extend((s.tokens[:], list(d.tokens)) for s, d in zip(live, drafts, strict=True))
        return drafts

    monkeypatch.setattr(DraftHead, "draft", spy)
    return seen


def check(pair: Pair, made: list[tuple[array[int], list[int]]]) -> int:
    """Compare drafts with numpy's up to where two logits are too close to tell. Returns guesses compared."""
    compared = 0
    for text, guesses in made:
        logits = numpy_heads.steps(pair.target, pair.head, list(text), len(guesses), guesses)
        for guess, row in zip(guesses, logits, strict=True):
            best = np.sort(row)[-2:]
            if best[1] - best[0] > CLOSE:
                assert guess == row.argmax(), f"after {len(text)} tokens"
                compared += 1
    return compared


PROMPTS = ["abcafbce", "abcafbfeddca" * 12, "abcafbcefacd", "f" * 90 + "abc", "abcafbfeddca" * 7 + "b"]
"""New, long, cut back, another, cut back in the middle."""


def test_every_guess_is_numpys(pair: Pair, made: list[tuple[array[int], list[int]]]) -> None:
    """Through prompts that are longer than a piece, shared beginnings, rejections and several prompts."""
    with Engine(pair.settings(spec_draft_n_max=min(4, pair.n_heads), ubatch_size=64)) as engine:
        for prompt in PROMPTS:
            ask(engine, prompt, predict=24)
            assert len(made) > 5
            assert check(pair, made) > 12
            made.clear()


def test_text_is_that_of_plain_decoding(pair: Pair) -> None:
    """n_max 0 to 8, greedy and sampled, two prompts through one context."""
    with (
        Engine(pair.settings(model_draft=None, spec_type=("none",))) as plain,
        Engine(pair.settings(spec_draft_n_max=8)) as engine,
    ):
        for n_max in range(9):
            for temp in (0.0, 0.8):
                for prompt in ("abcafbce", "cab"):
                    how = {"predict": 24, "temp": temp, "seed": 7}
                    answer = ask(engine, prompt, spec_draft_n_max=min(n_max, pair.n_heads), **how)
                    assert answer.text == ask(plain, prompt, **how).text
                    assert (answer.stats.total.drafted > 0) == (n_max > 0)


def test_two_sequences_in_one_pass(pair: Pair, made: list[tuple[array[int], list[int]]]) -> None:
    """Their guesses are numpy's too, and both come out as they do alone."""
    prompts = ["abcafbcefacd", "abcafbcefacdfebdaaab"]
    with Engine(pair.settings(spec_draft_n_max=3)) as engine:
        alone = [told(ask(engine, prompt, predict=24, seed=5).as_json()) for prompt in prompts]
    made.clear()
    with Engine(pair.settings(spec_draft_n_max=3, parallel=2), batch=True) as engine:
        rows = [json.dumps({"prompt": prompt, "n_predict": 24, "seed": 5}).encode() for prompt in prompts]
        assert [told(record) for record in run(engine, rows)] == alone
    assert check(pair, made) > 24
