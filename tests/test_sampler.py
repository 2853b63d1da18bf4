"""The sampler chain against the formulas it stands for."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from spec_cli.contracts import Pass
from spec_cli.engine import Engine
from spec_cli.errors import BackendError, UsageError
from spec_cli.llama.context import ContextParams
from spec_cli.llama.model import Model
from spec_cli.llama.rows import LogitRow
from spec_cli.llama.sampler import Sampler
from spec_cli.llama.session import Session
from spec_cli.settings import DEFAULT_SAMPLERS, Settings
from spec_cli.tokens import tokens
from spec_cli.values import read

PROMPT = [tiny.A + i % 7 for i in range(20)]


@pytest.fixture(scope="module")
def row(models: Path) -> Iterator[tuple[Model, LogitRow]]:
    with Model(models / "plain.gguf", "target") as model:
        session = Session(model, ContextParams(256))
        (rows,) = session.forward([Pass(0, tokens(PROMPT), len(PROMPT), 1)])
        yield model, rows[0]
        session.close()


def law(logits: np.ndarray, s: Settings) -> np.ndarray:
    """penalties, top-k, top-p, min-p, temperature, softmax; every cut on what the last one left."""
    x = logits.astype(np.float64)
    seen = Counter(PROMPT[-s.repeat_last_n :] if s.repeat_last_n else [])
    for token, count in seen.items():
        x[token] = x[token] * s.repeat_penalty if x[token] <= 0 else x[token] / s.repeat_penalty
        x[token] -= count * s.frequency_penalty + s.presence_penalty
    order = np.argsort(-x)
    if s.top_k > 0:
        order = order[: s.top_k]
    if s.top_p < 1:
        p = np.exp(x[order] - x[order[0]])
        order = order[: int(np.searchsorted(np.cumsum(p / p.sum()), s.top_p)) + 1]
    if s.min_p > 0:
        order = order[x[order] >= x[order[0]] + math.log(s.min_p)]
    p = np.exp((x[order] - x[order[0]]) / s.temp)
    result = np.zeros(len(x))
    result[order] = p / p.sum()
    return result


CHAINS = [
    Settings(),
    Settings(temp=1.5, top_k=0, top_p=1.0, min_p=0.0),
    Settings(temp=3.0, top_k=5, top_p=1.0, min_p=0.0),
    Settings(temp=2.0, top_k=0, top_p=0.9, min_p=0.0),
    Settings(temp=2.0, top_k=0, top_p=1.0, min_p=0.2),
    Settings(temp=2.0, repeat_penalty=1.5, presence_penalty=0.7, frequency_penalty=0.3, repeat_last_n=9),
    Settings(temp=2.0, repeat_penalty=1.5, repeat_last_n=0),
]


@pytest.mark.parametrize("chain", CHAINS, ids=range(len(CHAINS)))
def test_draws_follow_the_formulas(row: tuple[Model, LogitRow], chain: Settings) -> None:
    """4,000 seeds, one draw each: no token outside the law's support, frequencies within 4 sigma."""
    model, logit_row = row
    right, draws = law(logit_row.logits, chain), 4000
    counts = np.zeros(len(right))
    for seed in range(draws):
        sampler = Sampler(model.vocab, chain, seed, PROMPT)
        counts[sampler.sample(logit_row)] += 1
        sampler.close()
    assert not counts[right < 1e-12].any()
    assert (np.abs(counts / draws - right) <= 4 * np.sqrt(right * (1 - right) / draws) + 4 / draws).all()


def test_greedy_by_argmax_equals_greedy_by_chain(row: tuple[Model, LogitRow]) -> None:
    model, logit_row = row
    fast = Sampler(model.vocab, Settings(temp=0.0), 1)
    slow = Sampler(model.vocab, Settings(temp=0.0, presence_penalty=1e-9), 1)
    assert fast._greedy
    assert not slow._greedy
    assert fast.sample(logit_row) == slow.sample(logit_row) == int(logit_row.logits.argmax())
    fast.close()
    slow.close()


def test_a_seed_is_a_stream(row: tuple[Model, LogitRow]) -> None:
    model, logit_row = row
    hot = Settings(temp=5.0, top_k=0, top_p=1.0, min_p=0.0)

    def stream(seed: int) -> list[int | None]:
        sampler = Sampler(model.vocab, hot, seed)
        result = [sampler.sample(logit_row) for _ in range(20)]
        sampler.close()
        return result

    assert stream(1) == stream(1)
    assert stream(1) != stream(2)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_a_row_without_a_usable_maximum_is_an_error(row: tuple[Model, LogitRow], bad: float) -> None:
    """Never handed to C, which would sort NaNs."""
    model, logit_row = row
    logits = logit_row.logits
    saved = logits.copy()
    for settings in (Settings(temp=0.0), Settings(temp=1.0), Settings(repeat_penalty=1.2)):
        sampler = Sampler(model.vocab, settings, 1)
        if bad == -np.inf:
            logits[:] = bad
        else:
            logits[random.randrange(len(logits))] = bad
        with pytest.raises(BackendError, match="no finite logits"):
            sampler.sample(logit_row)
        logits[:] = saved
        assert sampler.sample(logit_row) is not None
        sampler.close()


@pytest.mark.parametrize("temp", [0.0, -1.0, 1e-30, 1e-7])
def test_temperatures_too_low_to_divide_by_are_greedy(row: tuple[Model, LogitRow], temp: float) -> None:
    model, logit_row = row
    for settings in (Settings(temp=temp), replace(Settings(temp=temp), repeat_penalty=1.0001)):
        sampler = Sampler(model.vocab, settings, 3, PROMPT)
        assert sampler.sample(logit_row) == int(law(logit_row.logits, replace(settings, temp=1e-3)).argmax())
        sampler.close()


def test_what_the_file_suggests_holds_where_nothing_was_said(tmp_path: Path) -> None:
    """general.sampling.*, below flags, environment and models.toml."""
    path = tiny.clock(tmp_path / "hints.gguf", sampling={"temp": 0.25, "top_k": 7, "penalty_last_n": 5})
    with Engine(Settings(model=path, top_k=9, ctx_size=256, threads=1, origins={"temp": "--temp"})) as engine:
        found = engine.settings
    assert (found.temp, found.top_k, found.repeat_last_n, found.top_p) == (0.8, 9, 5, 0.95)


def test_suppressed_tokens_are_never_sampled(tmp_path: Path) -> None:
    """tokenizer.ggml.suppress_tokens: the alphabet without its next letter."""
    path = tiny.clock(tmp_path / "suppressed.gguf", suppress=[tiny.A + 1])
    with Model(path, "target") as model:
        session = Session(model, ContextParams(256))
        (rows,) = session.forward([Pass(0, tokens([tiny.A]), 1, 1)])
        assert int(rows[0].logits.argmax()) == tiny.A + 1
        for settings in (Settings(temp=0.0), Settings(temp=1.0)):
            sampler = Sampler(model.vocab, settings, 1)
            assert sampler.sample(rows[0]) != tiny.A + 1
            sampler.close()
        session.close()


HOT = Settings(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize(
    ("how", "moves"),
    [
        ({"typical": 0.5}, True),
        ({"xtc_probability": 0.9}, True),
        ({"dry_multiplier": 0.5}, True),
        ({"repeat_penalty": 1.1}, True),
        ({"logit_bias": ("262+1",)}, True),
        ({"ignore_eos": True}, True),
        ({"mirostat": 1}, True),
        ({"dynatemp_range": 0.3}, True),
        ({"samplers": ("top_k", "adaptive_p", "temperature")}, True),
        ({"samplers": ("top_k",)}, True),
        ({"top_n_sigma": 1.0}, False),
        ({"top_k": 3, "top_p": 0.5, "min_p": 0.3}, False),
        ({"samplers": ("temperature",)}, False),
    ],
)
def test_the_argmax_is_taken_only_where_no_sampler_moves_it(
    row: tuple[Model, LogitRow], how: dict[str, object], moves: bool
) -> None:
    """A short cut only where the chain would say the same; a temperature that is not listed is none."""
    model, logit_row = row
    sampler = Sampler(model.vocab, replace(HOT, temp=0.0, **how), 1, PROMPT)
    assert sampler._greedy is not moves
    if not moves:
        assert sampler.sample(logit_row) == int(logit_row.logits.argmax())
    sampler.close()


def test_biases_reach_the_logits(row: tuple[Model, LogitRow]) -> None:
    model, logit_row = row
    best, second = np.argsort(-logit_row.logits)[:2]
    for how, right in (
        ({}, best),
        ({"logit_bias": (f"{best}-inf",)}, second),
        ({"logit_bias": (f"{tiny.A + 3}+100",)}, tiny.A + 3),
        ({"samplers": ("temperature",), "sampler_seq": ("top_k", "temperature")}, best),
    ):
        sampler = Sampler(model.vocab, replace(HOT, temp=0.0, **how), 1, PROMPT)
        assert sampler.sample(logit_row) == right
        sampler.close()


def test_an_end_that_is_ignored_never_comes(models: Path) -> None:
    plain = Settings(model=models / "clock_eos_m.gguf", threads=1, temp=0.0, spec_type=("none",), predict=30)
    for ignore, n in ((False, 3), (True, 30)):
        with Engine(replace(plain, ignore_eos=ignore)) as engine:
            assert engine.generate(tokens([tiny.A + 8])).stats.predicted_n == n + (not ignore)


def test_a_bias_for_a_token_that_is_not_there_is_refused(models: Path) -> None:
    odd = Settings(model=models / "clock.gguf", threads=1, logit_bias=(f"{tiny.SIZE}+1",))
    with Engine(odd) as engine, pytest.raises(UsageError, match=f"the tokens 0 to {tiny.SIZE - 1}"):
        engine.generate(tokens([tiny.A]))


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("samplers", "top-k;TEMPERATURE;typical_p", ("top_k", "temperature", "typ_p")),
        ("samplers", "topk, min-p, nucleus, temp", ("top_k", "min_p", "top_p", "temperature")),
        ("samplers", "kmt", ("top_k", "min_p", "temperature")),
        ("samplers", ["dry", "xtc"], ("dry", "xtc")),
        ("sampler_seq", "edskypmxt", DEFAULT_SAMPLERS),
        ("logit_bias", {"12": -100, "3": 1.5}, ("12-100", "3+1.5")),
        ("logit_bias", [[7, False], [8, -0.5]], ("7-inf", "8-0.5")),
        ("logit_bias", "15043+1", ("15043+1",)),
    ],
)
def test_samplers_and_biases_in_every_spelling(name: str, text: object, right: object) -> None:
    assert read(name, text, "x") == right


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("samplers", "top_k;magic"),
        ("sampler_seq", "kz"),
        ("logit_bias", "12"),
        ("logit_bias", "-3+1"),
        ("logit_bias", [[1]]),
    ],
)
def test_unknown_samplers_and_odd_biases_are_refused(name: str, text: object) -> None:
    with pytest.raises(UsageError, match="x: "):
        read(name, text, "x")
