"""Promises of `forward`: whatever came before, the rows are those of the text alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tiny

from spec_cli.contracts import Pass
from spec_cli.errors import Interrupted
from spec_cli.llama.context import ContextParams
from spec_cli.llama.model import Model
from spec_cli.llama.session import Session
from spec_cli.tokens import tokens

MEMORIES = ["plain.gguf", "swa.gguf", "mamba.gguf", "hybrid.gguf"]
EXACT = {"type_k": 0, "type_v": 0, "flash_attn": 0}  # F32: rounding stays far below the margins


@contextmanager
def session(path: Path, **sizes: int) -> Iterator[Session]:
    params = ContextParams(**{"n_ctx": 512, "n_outputs": 32, **EXACT, **sizes})
    with Model(path, "target") as model:
        s = Session(model, params)
        try:
            yield s
        finally:
            s.close()


def greedy(s: Session, prompt: list[int], n: int, sequence: int = 0) -> list[int]:
    """Plain decoding, a token at a time."""
    text = tokens(prompt)
    for _ in range(n):
        text.append(int(s.forward([Pass(sequence, text, len(text), 1)])[0][0].logits.argmax()))
    return list(text)


def letters(rng: random.Random, n: int) -> list[int]:
    return [tiny.A + rng.randrange(26) for _ in range(n)]


@pytest.mark.parametrize("memory", MEMORIES)
def test_any_history_of_passes_gives_the_rows_of_a_fresh_session(models: Path, memory: str) -> None:
    """Random texts that share prefixes, with random certain parts, guesses and output counts."""
    rng = random.Random(memory)
    text: list[int] = []
    with session(models / memory) as used, session(models / memory) as fresh:
        for turn in range(60):
            text = text[: rng.randrange(len(text) + 1)] if turn % 3 else text
            text = (text + letters(rng, rng.randrange(1, 40)))[-300:]
            outputs = rng.randrange(1, min(9, len(text) + 1))
            sure = rng.randrange(len(text) - outputs + 1, len(text) + 1)
            (rows,) = used.forward([Pass(0, tokens(text), sure, outputs)])
            got = np.array([rows[i].logits for i in range(outputs)])
            assert list(used.memory.held(0)) == text
            fresh.forward([Pass(0, tokens(), 0, 0)])
            (right,) = fresh.forward([Pass(0, tokens(text), len(text), outputs)])
            assert right.cached == 0
            np.testing.assert_allclose(got, [right[i].logits for i in range(outputs)], atol=2e-3)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("n", [2, 3])
def test_sequences_in_one_pass_equal_their_solo_runs(models: Path, memory: str, n: int) -> None:
    """Random drafts, right and wrong, of random lengths, for every sequence in each pass."""
    rng = random.Random(f"{memory}{n}")
    prompts = [letters(rng, rng.randrange(1, 60)) for _ in range(n)]
    with session(models / memory) as s:
        right = [greedy(s, p, 40) for p in prompts]
    with session(models / memory, n_sequences=n) as s:
        texts = [tokens(p) for p in prompts]
        while any(len(t) < len(r) for t, r in zip(texts, right, strict=True)):
            live = [i for i in range(n) if len(texts[i]) < len(right[i])]
            drafts = {}
            for i in live:
                true = right[i][len(texts[i]) : len(texts[i]) + rng.randrange(9)]
                drafts[i] = tokens(t if rng.random() < 0.7 else tiny.A + rng.randrange(26) for t in true)
            passes = [Pass(i, texts[i] + drafts[i], len(texts[i]), len(drafts[i]) + 1) for i in live]
            for i, rows in zip(live, s.forward(passes), strict=True):
                for k in range(len(rows)):
                    texts[i].append(int(rows[k].logits.argmax()))
                    if k < len(drafts[i]) and texts[i][-1] != drafts[i][k]:
                        break
        for t, r in zip(texts, right, strict=True):
            assert list(t[: len(r)]) == r


@pytest.mark.long
@pytest.mark.parametrize("memory", MEMORIES)
def test_long_texts_of_three_sequences_share_passes(models: Path, memory: str) -> None:
    """Texts far longer than a window and than a ubatch, cut and grown at random, in random company."""
    rng = random.Random(memory)
    texts = {i: letters(rng, 40) for i in range(3)}
    with session(models / memory, n_sequences=3, n_batch=64, n_ubatch=16) as s, session(models / memory) as fresh:
        for _ in range(60):
            for i in texts:
                keep = rng.randrange(len(texts[i]) // 2, len(texts[i]) + 1)
                texts[i] = (texts[i][:keep] + letters(rng, rng.randrange(1, 60)))[:480]
            live = rng.sample(range(3), rng.randrange(1, 4))
            outputs = {i: rng.randrange(1, 5) for i in live}
            passes = [Pass(i, tokens(texts[i]), len(texts[i]) - outputs[i] + 1, outputs[i]) for i in live]
            scored = s.forward(passes)
            got = {i: [rows[k].logits.copy() for k in range(len(rows))] for i, rows in zip(live, scored, strict=True)}
            for i in live:
                fresh.forward([Pass(0, tokens(), 0, 0)])
                (right,) = fresh.forward([Pass(0, tokens(texts[i]), len(texts[i]), outputs[i])])
                np.testing.assert_allclose(got[i], [right[k].logits for k in range(outputs[i])], atol=2e-2)


@pytest.mark.parametrize("memory", MEMORIES)
def test_small_batches_change_nothing(models: Path, memory: str) -> None:
    """Chunked prefill: 200 tokens through n_batch 32, n_ubatch 1 and 7, one sequence and two."""
    prompt = letters(random.Random(1), 200)
    with session(models / memory) as s:
        right = greedy(s, prompt, 12)
    for sizes in ({"n_batch": 32}, {"n_batch": 33, "n_ubatch": 7}, {"n_batch": 40, "n_ubatch": 1}):
        with session(models / memory, n_sequences=2, **sizes) as s:
            assert greedy(s, prompt, 12) == right
            s.forward([Pass(1, tokens(prompt[:50]), 50, 0)])
            assert greedy(s, prompt, 12, sequence=1) == right


def test_prefill_in_pieces_without_outputs(models: Path) -> None:
    prompt = letters(random.Random(2), 100)
    with session(models / "plain.gguf") as s:
        right = greedy(s, prompt, 5)
    with session(models / "plain.gguf") as s:
        for end in (30, 60, 100):
            (rows,) = s.forward([Pass(0, tokens(prompt[:end]), end, 0)])
            assert len(rows) == 0
        assert list(s.memory.held(0)) == prompt
        assert greedy(s, prompt, 5) == right


def test_a_sliding_window_is_not_cut_deeper_than_it_reaches(models: Path) -> None:
    """Far behind the window llama.cpp would say yes to the removal and give wrong logits."""
    long = letters(random.Random(3), 480)
    with session(models / "swa.gguf", n_ubatch=32) as s:
        s.forward([Pass(0, tokens(long), len(long), 1)])
        (rows,) = s.forward([Pass(0, tokens(long[:60]), 60, 1)])
        got = rows[0].logits.copy()
        assert rows.cached == 0, "the window at position 60 is long gone: everything is decoded again"
        (rows,) = s.forward([Pass(0, tokens(long[:50]), 50, 1)])
        assert rows.cached == 49, "near the end of what is held, the prefix is reused"
    with session(models / "swa.gguf") as s:
        (rows,) = s.forward([Pass(0, tokens(long[:60]), 60, 1)])
        np.testing.assert_allclose(got, rows[0].logits, atol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("memory", ["mamba.gguf", "hybrid.gguf"])
def test_always_wrong_guesses_on_recurrent_memory_stay_cheap(models: Path, memory: str) -> None:
    """200 tokens, every guess rejected: at most 10 decoded tokens for each one emitted."""
    with session(models / memory) as s:
        right = greedy(s, [tiny.A], 200)
    for n in (1, 3, 4, 6):
        with session(models / memory) as s:
            text, decoded = tokens([tiny.A]), 0
            while len(text) < len(right):
                wrong = tokens([tiny.byte(0)] * n)
                (rows,) = s.forward([Pass(0, text + wrong, len(text), n + 1)])
                decoded += rows.decoded
                text.append(int(rows[0].logits.argmax()))
            assert list(text) == right
            assert decoded <= 10 * 200, f"{decoded} tokens decoded with {n} guesses"


@pytest.mark.parametrize("memory", MEMORIES)
def test_abort_inside_a_prompt_then_the_next_answer_is_a_fresh_one(models: Path, memory: str) -> None:
    prompt = letters(random.Random(4), 450)
    other = letters(random.Random(5), 20)
    with session(models / memory) as s:
        right, right_other = greedy(s, prompt, 8), greedy(s, other, 8)
    with session(models / memory, n_batch=64, n_ubatch=16) as s:
        for text, answer in ((prompt, right), (other, right_other), (prompt, right)):
            s.forward([Pass(0, tokens(text[:100]), 100, 0)]) if len(text) > 100 else None
            s.abort.set()
            with pytest.raises(Interrupted):
                s.forward([Pass(0, tokens(text), len(text), 1)])
            s.abort.clear()
            assert list(s.memory.held(0)) == text[: len(s.memory.held(0))]
            assert greedy(s, text, 8) == answer


@pytest.mark.long
@pytest.mark.parametrize("memory", MEMORIES)
def test_abort_at_any_moment_of_a_running_pass(models: Path, memory: str) -> None:
    """Another thread sets the byte while C computes; guesses are in flight."""
    rng = random.Random(6)
    prompt = letters(rng, 400)
    with session(models / memory) as s:
        right = greedy(s, prompt, 6)
    aborted = 0
    with session(models / memory, n_ubatch=8) as s:
        for turn in range(40):
            guesses = letters(rng, 4)
            timer = threading.Timer(turn * 2e-4, s.abort.set)
            timer.start()
            try:
                s.forward([Pass(0, tokens(prompt + guesses), len(prompt), 5)])
                time.sleep(0.001)
            except Interrupted:
                aborted += 1
            timer.join()
            s.abort.clear()
            held = list(s.memory.held(0))
            assert held == (prompt + guesses)[: len(held)]
            if turn % 8 == 0:
                assert greedy(s, prompt, 6) == right
        assert greedy(s, prompt, 6) == right
    assert aborted > 0


def test_an_exception_between_two_decodes_leaves_the_session_usable(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a second Ctrl-C raises: the memory is no longer believed, and filled again."""
    import spec_cli.llama.session as module

    prompt = letters(random.Random(8), 90)
    for memory in MEMORIES:
        with session(models / memory, n_batch=32) as s:
            right = greedy(s, prompt, 6)
            real = module.C.llama_decode
            monkeypatch.setattr(
                module.C, "llama_decode", lambda *a, real=real: [real(*a), (_ for _ in ()).throw(KeyboardInterrupt)][0]
            )
            with pytest.raises(KeyboardInterrupt):
                s.forward([Pass(0, tokens(letters(random.Random(9), 50)), 50, 1)])
            monkeypatch.setattr(module.C, "llama_decode", real)
            assert len(s.memory.held(0)) == 0
            assert greedy(s, prompt, 6) == right


def test_an_identical_text_is_decoded_for_one_row_only(models: Path) -> None:
    prompt = letters(random.Random(10), 64)
    with session(models / "plain.gguf") as s:
        s.forward([Pass(0, tokens(prompt), 64, 1)])
        (rows,) = s.forward([Pass(0, tokens(prompt), 64, 1)])
        assert (rows.cached, rows.decoded) == (63, 1)
