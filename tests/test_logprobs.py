"""--logprobs: the target's own distribution, whoever guessed and however it was sampled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import answer_of, generate, refused
from conftest import ask
from test_batch import batch, jsonl, records

from spec_cli.contracts import Pass
from spec_cli.engine import Engine
from spec_cli.settings import Settings
from spec_cli.tokens import tokens

HOW: dict[str, Any] = {"temp": 0.9, "seed": 3, "predict": 24, "logprobs": 4, "repeat_penalty": 1.2}
EXACT: dict[str, Any] = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": 0}


@pytest.mark.parametrize("file", ["plain.gguf", "swa.gguf", "mamba.gguf"])
def test_they_are_the_log_softmax_of_the_raw_logits(models: Path, file: str) -> None:
    """Recomputed here from a pass over the whole text; with drafts and penalties the same."""
    plain = Settings(model=models / file, threads=1, ctx_size=256, spec_type=("none",), **EXACT)
    with Engine(plain) as none, Engine(replace(plain, spec_type=None, model_draft=models / file)) as drafted:
        answers = [ask(engine, "hello", **HOW) for engine in (none, drafted)]
        assert answers[1].stats.total.accepted > 0
        text = none.vocab.tokenize(b"hello", add_special=True, parse_special=True)
        for answer in answers:
            assert answer.logprobs is not None
            assert [entry["id"] for entry in answer.logprobs] == list(answer.tokens)
            for i, entry in enumerate(answer.logprobs):
                sofar = text + answer.tokens[:i]
                (rows,) = none.target.forward([Pass(0, tokens(sofar), len(sofar), 1)])
                logits = rows[0].logits.astype(np.float64)
                right = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
                assert entry["logprob"] == pytest.approx(right[entry["id"]], abs=2e-2)
                best = np.argsort(-right, kind="stable")[:4]
                assert [top["id"] for top in entry["top_logprobs"]] == list(best)
                assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx(right[best], abs=2e-2)


def test_there_is_one_for_each_token_of_the_text(models: Path) -> None:
    """None for the end token or a stop string; 0 gives no alternatives."""
    model = models / "clock_eos_m.gguf"
    for args, text in ((("-n", 9), "jkl"), (("-n", 9, "--stop", "l"), "jk"), (("-n", 2), "jk")):
        got = answer_of(generate(model, "-p", "ghi", "--json", "--logprobs", 0, *args))
        assert [entry["token"] for entry in got["logprobs"]] == list(text)
        assert all(entry["top_logprobs"] == [] and entry["logprob"] > -0.01 for entry in got["logprobs"])
    assert "logprobs" not in answer_of(generate(model, "-p", "ghi", "--json"))
    assert "--logprobs: needs --json" in refused(generate(model, "-p", "ghi", "--logprobs", 3), 2)


def test_rows_ask_for_them_in_every_dialect(models: Path) -> None:
    rows = [
        {"prompt": "abc", "logprobs": 2},
        {"prompt": "abc", "n_probs": 2},
        {"prompt": "abc", "logprobs": True, "top_logprobs": 2},
        {"prompt": "abc", "logprobs": False},
        {"prompt": "abc", "logprobs": True},
    ]
    got = records(batch(models / "clock.gguf", "-n", 2, stdin=jsonl(*rows)).stdout)
    assert [len(r["logprobs"][0]["top_logprobs"]) if "logprobs" in r else None for r in got] == [2, 2, 2, None, 0]
    assert json.dumps(got[0]["logprobs"]) == json.dumps(got[2]["logprobs"])
