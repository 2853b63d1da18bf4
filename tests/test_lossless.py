"""The promise of the tool: with any drafter, the text is the one without. Compared with ==."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from conftest import ask, guess_with
from hypothesis import HealthCheck, given, settings, strategies as st

from spec_cli.contracts import Draft, Live, Prompt
from spec_cli.drafters.ngram_simple import NgramSimple
from spec_cli.engine import Answer, Engine
from spec_cli.settings import Settings
from spec_cli.tokens import tokens

pytestmark = pytest.mark.long

EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "cache_type_k_draft": "f32", "cache_type_v_draft": "f32"}
SMALL = {"threads": 1, "ctx_size": 256, "flash_attn": 0, **EXACT}


class Scripted:
    """A drafter that guesses whatever a function says, right or wrong, within limits or not."""

    name = "scripted"

    def __init__(self, kind: str, truth: Sequence[int] = (), seed: int = 0) -> None:
        self.kind, self.truth, self.rng = kind, list(truth), random.Random(seed)

    def begin(self, sequence: Live) -> None:
        self.prompt = len(sequence.tokens)

    def read(self, prompts: Sequence[Prompt], ends: Sequence[int]) -> None: ...

    def accepted(self, sequence: Live, n: int) -> None:
        assert n >= 0

    def draft(self, live: Sequence[Live]) -> list[Draft]:
        return [Draft(tokens(self.guess(s)), self.name) for s in live]

    def guess(self, s: Live) -> list[int]:
        emitted = len(s.tokens) - self.prompt
        true = self.truth[emitted : emitted + s.limit]
        wrong = [tiny.A + (t - tiny.A + 1) % 26 for t in true] or [tiny.A]
        return {
            "oracle": true,
            "wrong": wrong,
            "over-long": self.truth[emitted:] + [tiny.A] * 40,
            "ends": [*true[:1], tiny.EOS, tiny.BOS, *true[2:]],
            "out of range": [*true[:2], tiny.SIZE, -1, 2**31 - 1],
            "mixed": [t if self.rng.random() < 0.7 else tiny.A + self.rng.randrange(26) for t in true],
            "nothing": [],
        }[self.kind]


KINDS = ["oracle", "wrong", "over-long", "ends", "out of range", "mixed", "nothing", "ngram-simple"]
FILES = ["clock.gguf", "clock_eos_m.gguf", "clock_utf8.gguf", "plain.gguf", "swa.gguf", "mamba.gguf", "hybrid.gguf"]


@pytest.fixture(scope="module")
def engines(models: Path) -> Iterator[dict[str, Engine]]:
    """For each tiny model one engine without a draft model, one with itself, one with a useless one."""
    made = {}
    for file in FILES:
        ngram = Settings(model=models / file, spec_type=("ngram-simple",), spec_ngram_simple_size_m=16, **SMALL)
        made[file] = Engine(ngram)
        for draft in (file, "const_j.gguf"):
            made[f"{file}+{draft}"] = Engine(
                replace(ngram, spec_type=None, model_draft=models / draft, spec_draft_n_max=16)
            )
    yield made
    for engine in made.values():
        engine.close()


prompts = st.one_of(
    st.text(tiny.LETTERS, min_size=1, max_size=60),
    st.integers(1, 90).map(tiny.alphabet),
    st.text("ab", min_size=1, max_size=40),
)
choices = st.fixed_dictionaries(
    {
        "temp": st.sampled_from([0.0, 0.8]),
        "seed": st.integers(0, 1000),
        "predict": st.integers(1, 40),
        "repeat_penalty": st.sampled_from([1.0, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([0.0, 0.0, 0.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.2]),
        "stop": st.sampled_from([(), (), ("xy",), ("jklmno", "no")]),
    },
    optional={
        "typical": st.just(0.6),
        "top_n_sigma": st.just(1.5),
        "xtc_probability": st.just(0.5),
        "dry_multiplier": st.just(0.8),
        "dynatemp_range": st.just(0.5),
        "mirostat": st.sampled_from([1, 2]),
        "samplers": st.sampled_from([("top_k", "temperature"), ("min_p", "adaptive_p"), ("temperature", "xtc", "dry")]),
        "logit_bias": st.just(("262+3", "265-inf")),
        "ignore_eos": st.booleans(),
    },
)


def same(a: Answer, b: Answer) -> None:
    assert (a.text, a.tokens, a.finish_reason, a.stop) == (b.text, b.tokens, b.finish_reason, b.stop)
    assert a.stats.predicted_n == b.stats.predicted_n
    total = a.stats.total
    assert total.drafted == total.accepted + total.rejected
    assert total.accepted <= a.stats.predicted_n
    assert sum(total.accepted_at) == total.accepted
    # each round emits its accepted guesses and one token more, unless the text ended on a guess
    emitted = a.stats.predicted_n - 1 - total.accepted
    assert emitted in (a.stats.rounds, a.stats.rounds - 1)


def plain(engine: Engine, prompt: str, how: dict[str, object]) -> Answer:
    guess_with(engine)
    return ask(engine, prompt, **how)


@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(FILES), st.sampled_from(KINDS), st.integers(0, 16), prompts, choices)
def test_any_drafter_gives_the_text_of_none(
    engines: dict[str, Engine], file: str, kind: str, n_max: int, prompt: str, how: dict[str, object]
) -> None:
    engine = engines[file]
    right = plain(engine, prompt, how)
    drafter = NgramSimple(3, 8) if kind == "ngram-simple" else Scripted(kind, right.tokens)
    guess_with(engine, drafter, n_max=n_max)
    same(ask(engine, prompt, **how), right)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(FILES), st.booleans(), st.integers(0, 16), st.integers(0, 3), prompts, choices)
def test_a_draft_model_gives_the_text_of_none(
    engines: dict[str, Engine], file: str, useless: bool, n_max: int, p_min: int, prompt: str, how: dict[str, object]
) -> None:
    """p_min in fifths; the target itself as draft, or one that always says j."""
    right = plain(engines[file], prompt, how)
    engine = engines[f"{file}+{'const_j.gguf' if useless else file}"]
    engine.drafter._drafters[0]._p_min = p_min / 5  # type: ignore[attr-defined]
    same(ask(engine, prompt, **how, spec_draft_n_max=n_max), right)


def test_an_oracle_is_accepted_whole_and_a_wrong_drafter_never(engines: dict[str, Engine]) -> None:
    for file in ("plain.gguf", "swa.gguf", "mamba.gguf", "hybrid.gguf"):
        engine = engines[file]
        right = plain(engine, "hello", {"predict": 33, "temp": 0.0})
        guess_with(engine, Scripted("oracle", right.tokens), n_max=4)
        stats = ask(engine, "hello", predict=33, temp=0.0).stats
        assert (stats.total.accepted, stats.total.drafted) == (25, 25)
        assert stats.rounds == 7, "32 tokens after the first: six rounds of 4 + 1, one of 1 + 1"
        guess_with(engine, Scripted("wrong", right.tokens), n_max=4)
        stats = ask(engine, "hello", predict=33, temp=0.0).stats
        assert (stats.total.accepted, stats.rounds) == (0, 32)


DOZEN: list[tuple[str, dict[str, Any]]] = [
    ("The capital of France is", {}),
    ("1, 2, 3, 4, 5, 6, 7, 8, 9,", {}),
    ("Once upon a time", {"temp": 0.8, "seed": 42}),
    ("Once upon a time", {"temp": 0.8, "seed": 43, "repeat_penalty": 1.2}),
    ("def fib(n):\n    if n < 2:\n        return n\n", {}),
    ("a b c d a b c d a b c d a b", {"repeat_penalty": 1.1, "frequency_penalty": 0.1}),
    ("red, green, blue, red, green, blue, red, green,", {}),
    ("To be, or not to be, that is", {"temp": 0.8, "seed": 7, "top_k": 0, "top_p": 1.0, "min_p": 0.0}),
    ("🦙🦙🦙🦙🦙🦙🦙🦙", {"predict": 24}),
    ("Dear Sir or Madam,", {"temp": 1.2, "seed": 11, "presence_penalty": 0.4}),
    ("<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n", {}),
    ("x = 1\ny = 2\nz = 3\nx = 1\ny = 2\nz =", {"stop": ("x = 1\n",)}),
    ("Red, green, blue,", {"grammar": 'root ::= " red, green, blue,"{9}', "predict": 40}),
]


@pytest.fixture(scope="module")
def without(smol: Path) -> list[Answer]:
    """The dozen without drafts: default flash attention and cache types."""
    with Engine(Settings(model=smol, spec_type=("none",), **REAL)) as engine:
        return [ask(engine, text, **how) for text, how in DOZEN]


REAL = {"threads": 1, "ctx_size": 512, "temp": 0.0, "predict": 16}


@pytest.mark.parametrize("kind", ["ngram-simple", "draft-simple"])
def test_a_dozen_prompts_on_a_real_model(smol: Path, without: list[Answer], kind: str) -> None:
    """Under 250 positions, where the kernels are exact; the last text must repeat itself, whatever the model likes."""
    drafts = {
        "ngram-simple": {"spec_type": (kind,), "spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 8},
        "draft-simple": {"model_draft": smol, "spec_draft_n_max": 3},
    }
    with Engine(Settings(model=smol, **REAL, **drafts[kind])) as engine:  # type: ignore[arg-type]
        answers = [ask(engine, text, **how) for text, how in DOZEN]
    for a, b in zip(answers, without, strict=True):
        same(a, b)
    assert answers[-1].stats.total.accepted > 10, "drafts were really made"
