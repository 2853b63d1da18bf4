"""The promise of batch: a row's result is the one that it has alone, whoever runs beside it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from conftest import ask
from hypothesis import HealthCheck, given, settings, strategies as st

from spec_cli.batch.lines import Lines
from spec_cli.batch.run import Run
from spec_cli.engine import Engine
from spec_cli.errors import PromptError
from spec_cli.settings import Settings

pytestmark = pytest.mark.long

EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "cache_type_k_draft": "f32", "cache_type_v_draft": "f32"}
SMALL = {"threads": 1, "ctx_size": 256, "flash_attn": 0, "raw": True, "spec_draft_n_max": 8, **EXACT}
NGRAM = {"spec_ngram_simple_size_n": 3, "spec_ngram_simple_size_m": 8}
PAIRS = {"plain": "mamba", "swa": "plain", "mamba": "plain", "hybrid": "hybrid"}
WAYS = ("none", "ngram-simple", "draft-simple", "ngram-simple,draft-simple")


def run(engine: Engine, rows: list[bytes], **how: Any) -> list[dict[str, Any]]:
    """The records of a batch in this process, in the order in which they were written."""
    reader, writer = os.pipe()
    lines, written = Lines(reader, 2 * engine.n_rows), []
    engine.settings = replace(engine.settings, format="jsonl", **how)
    one = Run(engine, lines, written.append, name="", bound={}, answered={}, stop=lambda: False)
    with os.fdopen(writer, "wb") as pipe:  # rows come one by one, as from a slow producer
        for row in rows:
            pipe.write(row + b"\n")
            pipe.flush()
            one.step(lambda: lines.take(wait=False))
    while one.step(lambda: lines.take(wait=True)):
        pass
    os.close(reader)
    assert one.complete
    assert one.totals.answered + one.totals.failed == len(rows)
    return [json.loads(text) for text in written]


@pytest.fixture(scope="module", params=PAIRS)
def engines(request: pytest.FixtureRequest, models: Path) -> Iterator[dict[object, Engine]]:
    """Of one kind of memory: an engine for each way of guessing, and batches of 1, 3 and 8 rows."""
    target, draft = models / f"{request.param}.gguf", models / f"{PAIRS[request.param]}.gguf"
    alone = Settings(model=target, **SMALL, **NGRAM)  # type: ignore[arg-type]
    both = replace(alone, model_draft=draft)
    made: dict[object, Engine] = {}
    for way in WAYS:
        types = tuple(way.split(","))
        made[way] = Engine(replace(both if "draft" in way else alone, spec_type=types))
    for n in (1, 3, 8):
        made[n] = Engine(replace(both, parallel=n), batch=True)
    yield made
    for engine in made.values():
        engine.close()


beginnings = st.sampled_from(["", "", "thequickbrownfoxjumpsover", "abcdefghijklmnopqrstuvwxyzabcdefgh"])
prompts = st.builds(
    lambda head, tail: (head + tail) or "a",
    beginnings,
    st.one_of(st.text(tiny.LETTERS, max_size=90), st.integers(0, 120).map(tiny.alphabet), st.text("ab", max_size=50)),
)
good = st.fixed_dictionaries(
    {"prompt": prompts, "n_predict": st.integers(0, 40), "seed": st.integers(0, 99)},
    optional={
        "temperature": st.sampled_from([0, 0.8]),
        "stop": st.sampled_from(["xy", ["jklmno", "no"]]),
        "repeat_penalty": st.just(1.3),
        "spec_type": st.sampled_from(WAYS),
        "n_max": st.integers(0, 8),
    },
)
bad = st.sampled_from([b"[1]", b'{"prompt": 5}', b'{"prompt"', b"{}", b'{"prompt": "a", "temp": "hot"}', b'"\xff"'])
rows = st.lists(st.one_of(good, good, good, good, bad), min_size=1, max_size=16)


def solo(engines: dict[object, Engine], row: dict[str, Any]) -> dict[str, Any]:
    """What the row gives alone, in an engine made for its way of guessing."""
    row = dict(row)
    way, stop = row.pop("spec_type", "draft-simple"), row.pop("stop", ())
    how = {"predict": row["n_predict"], "seed": row["seed"], "temp": row.get("temperature", 0.8)}
    how |= {"stop": (stop,) if isinstance(stop, str) else tuple(stop)}
    how |= {"repeat_penalty": row.get("repeat_penalty", 1.0), "spec_draft_n_max": row.get("n_max", 8)}
    return ask(engines[way], row["prompt"], **how).as_json()


def told(record: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on the neighbours: all but times and what was in memory already."""
    same = {key: record[key] for key in ("text", "tokens", "finish_reason", "stop", "seed", "prompt_tokens")}
    counts = {key: record["timings"][key] for key in ("predicted_n", "draft_n", "draft_n_accepted")}
    spec = {key: record["speculative"][key] for key in ("types", "n_max", "rounds", "accepted_per_position")}
    return {**same, **counts, **spec}


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 3, 8])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(mix=rows)
def test_any_mix_of_rows_gives_each_its_solo_result(
    engines: dict[object, Engine], n: int, mix: list[dict[str, Any] | bytes]
) -> None:
    """Lengths, seeds, temperatures, stops, penalties, drafters, shared beginnings and bad rows, at random."""
    records = run(engines[n], [row if isinstance(row, bytes) else json.dumps(row).encode() for row in mix])
    assert [record["index"] for record in records] == list(range(len(mix)))
    for record, row in zip(records, mix, strict=True):
        if isinstance(row, bytes):
            assert set(record) == {"index", "hash", "error"}
            assert record["error"]["line"] == record["index"] + 1
        else:
            assert told(record) == told(solo(engines, row))


def test_places_and_spare_beginnings_are_what_the_memory_needs(engines: dict[object, Engine]) -> None:
    """Only models that cannot drop a suffix keep a beginning of its own."""
    for n in (1, 3, 8):
        engine = engines[n]
        assert engine.n_rows == n
        recurrent = not engine.target.model.can_drop_suffix
        assert (engine.scheduler._spare is not None) == (recurrent or "mamba" in str(engine.settings.model_draft))


SHARED = "thequickbrownfoxjumpsoverthelazydogandrunsaway"


@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_shared_beginning_is_decoded_once(engines: dict[object, Engine], n: int) -> None:
    """All rows are known at once here; a sliding window lends nothing (see --swa-full)."""
    engine = engines[n]
    engine.forget()
    asked = [{"prompt": SHARED + letter * 3, "n_predict": 20, "temp": 0} for letter in "abcdefghij"]
    timings = [record["timings"] for record in run_at_once(engine, asked)]
    for t, row in zip(timings, asked, strict=True):
        assert t["cache_n"] + t["prompt_n"] == len(row["prompt"])
    cached = [t["cache_n"] for t in timings]
    if engine.target.memory.can_share:
        assert cached == [0] + [len(SHARED)] * 9
    else:
        assert max(cached) <= len(SHARED)


def run_at_once(engine: Engine, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `run`, with all rows there before the first step."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(b"".join(json.dumps(row).encode() + b"\n" for row in asked))
    lines, written = Lines(reader, len(asked)), []
    engine.settings = replace(engine.settings, format="jsonl")
    one = Run(engine, lines, written.append, name="", bound={}, answered={}, stop=lambda: False)
    while lines._queue.qsize() < len(asked):
        pass
    while one.step(lambda: lines.take(wait=True)):
        pass
    os.close(reader)
    return [json.loads(text) for text in written]


def test_with_swa_full_a_sliding_window_lends_too(models: Path) -> None:
    asked = [{"prompt": SHARED + letter * 40, "n_predict": 60, "temp": 0} for letter in "abcdef"]
    small = Settings(model=models / "swa.gguf", parallel=3, swa_full=True, **SMALL)  # type: ignore[arg-type]
    with Engine(small, batch=True) as engine, Engine(replace(small, spec_type=("none",))) as alone:
        records = run_at_once(engine, asked)
        assert [record["timings"]["cache_n"] for record in records] == [0] + [len(SHARED)] * 5
        for record, row in zip(records, asked, strict=True):
            assert record["text"] == ask(alone, row["prompt"], predict=60, temp=0.0).text


@pytest.mark.long
def test_long_rows_crowd_nobody_out(models: Path) -> None:
    """Eight rows that each fill their whole context, with shared beginnings, and rows that do not fit alone."""
    for file in ("plain.gguf", "swa.gguf", "mamba.gguf", "hybrid.gguf"):
        small = Settings(model=models / file, parallel=4, **SMALL, **NGRAM)  # type: ignore[arg-type]
        with Engine(small, batch=True) as engine, Engine(replace(small, spec_type=("none",))) as alone:
            asked = [{"prompt": SHARED + tiny.alphabet(180 + i), "seed": i} for i in range(8)]
            asked.insert(3, {"prompt": "x" * 257})
            records = run(engine, [json.dumps(row).encode() for row in asked])
            error = records.pop(3)["error"]
            assert error == {"line": 4, "reason": "the prompt has 257 tokens, the context 256 (-c/--ctx-size)"}
            del asked[3]
            for record, row in zip(records, asked, strict=True):
                right = ask(alone, str(row["prompt"]), seed=row["seed"])
                assert (record["text"], record["finish_reason"]) == (right.text, "context")
            with pytest.raises(PromptError, match="257 tokens, the context 256"):
                ask(alone, "x" * 257)


def test_the_context_of_a_row_is_that_of_a_run_alone(models: Path) -> None:
    """Rounded up to a multiple of 256 for each, however many there are."""
    for ctx_size, n_ctx in ((100, 256), (256, 256), (300, 512)):
        for n in (1, 2, 8):
            small = Settings(model=models / "clock.gguf", parallel=n, **{**SMALL, "ctx_size": ctx_size})  # type: ignore[arg-type]
            with Engine(small, batch=True) as engine:
                assert engine.target.n_ctx == n_ctx


@pytest.mark.long
@pytest.mark.parametrize("full", [False, True])
def test_a_window_is_not_lost_while_others_are_read(models: Path, full: bool) -> None:
    """Rejected guesses are dropped before another row's prompt is read, which would free what they hide."""
    asked = [{"prompt": tiny.alphabet(20 * i + 100)[i:], "n_predict": 120, "temp": 0} for i in range(12)]
    small = Settings(
        model=models / "swa.gguf", model_draft=models / "clock.gguf", parallel=4, ubatch_size=64, swa_full=full,
        **{**SMALL, "ctx_size": 512},  # type: ignore[arg-type]
    )  # fmt: skip
    with Engine(small, batch=True) as engine:
        for record in run_at_once(engine, asked):
            timings, spec = record["timings"], record["speculative"]
            assert timings["draft_n_accepted"] < timings["draft_n"] / 4, "the clock is a bad draft here"
            assert spec["target_tokens"] == spec["rounds"] + timings["draft_n"], "nothing was decoded again"


def test_no_prompt_is_decoded_more_than_once(models: Path) -> None:
    """Recurrent memory, beginnings of many lengths: a shared one is read for a row once, and for nothing more."""
    rng = random.Random(4)
    text = "".join(rng.choice(tiny.LETTERS) for _ in range(240))
    for file, n in (("mamba.gguf", 1), ("mamba.gguf", 4), ("hybrid.gguf", 2)):
        asked = [{"prompt": text[: rng.randrange(20, 240)] + tiny.alphabet(9), "n_predict": 4} for _ in range(20)]
        small = Settings(model=models / file, parallel=n, ubatch_size=48, **SMALL, **NGRAM)  # type: ignore[arg-type]
        with Engine(small, batch=True) as engine:
            for record in run_at_once(engine, asked):
                assert record["timings"]["prompt_n"] <= record["prompt_tokens"]


def test_a_long_prompt_does_not_starve_those_who_run(models: Path) -> None:
    """2,000 tokens are read in pieces of 32; between two of them the other row goes on."""
    small = Settings(model=models / "plain.gguf", parallel=2, ubatch_size=32, **{**SMALL, "ctx_size": 2304})  # type: ignore[arg-type]
    with Engine(small, batch=True) as engine:
        scheduler, tokens = engine.scheduler, engine.vocab.tokenize
        first = engine.start(
            tokens(b"abc", add_special=False, parse_special=False), replace(engine.settings, predict=999)
        )
        scheduler.step()
        engine.start(tokens(b"xyz" * 670, add_special=False, parse_special=False), replace(engine.settings, predict=5))
        steps = 0
        while scheduler._reading or scheduler._waiting:
            before = first.s.emitted
            scheduler.step()
            steps += 1
            assert first.s.emitted > before or first.s.finish
        assert steps >= 2010 // 32
        scheduler.drop()
