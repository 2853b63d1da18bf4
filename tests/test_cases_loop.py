"""Public bug reports about the loop, the memory and the text, as promises (B01 to B22).

Every promise holds for plain decoding and for each way of guessing: the answer is the target's own.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny
from cases import A61, A78, NGRAM_FLAGS, answer_of, generate, said
from conftest import ask

from spec_cli.chat.prompt import chat_tokens, plain_tokens
from spec_cli.chat.template import ChatTemplate
from spec_cli.engine import Answer, Engine
from spec_cli.llama.vocab import Vocab
from spec_cli.sequence import Sequence
from spec_cli.settings import Settings

Make = Callable[..., Engine]

ONE = {"threads": 1}  # tiny models: a second thread only waits, and for long when the machine is busy
NONE: dict[str, Any] = {"spec_type": ("none",)}
NGRAM: dict[str, Any] = {
    "spec_type": ("ngram-simple",), "spec_ngram_simple_size_n": 3, "spec_ngram_simple_size_m": 8,
}  # fmt: skip
WAYS = ("none", "ngram", "self")
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9,"
LLAMAS = "\N{LLAMA}" * 8


def way(name: str, model: Path, n_max: int = 8) -> dict[str, Any]:
    """Settings of one way of guessing; `self` is the target as its own draft model."""
    return {"none": NONE, "ngram": NGRAM, "self": {"model_draft": model, "spec_draft_n_max": n_max}}[name] | ONE


def flags_of(name: str, model: Path, n_max: int = 8) -> tuple[object, ...]:
    """The same as flags."""
    return {"none": ("--spec-type", "none"), "ngram": NGRAM_FLAGS, "self": ("-md", model, "--spec-draft-n-max", n_max)}[
        name
    ]


def told(model: Path, *args: object) -> dict[str, Any]:
    """The JSON object of a run as a process of its own, which must end well, and what it said besides."""
    done = generate(model, *args, "--json")
    return {**answer_of(done), "stderr": said(done)}


def counts(answer: Answer) -> tuple[str, list[int], str, int, int, int]:
    """What must not depend on the requests before."""
    total = answer.stats.total
    return (
        answer.text, list(answer.tokens), answer.finish_reason, answer.stats.predicted_n, total.drafted, total.accepted,
    )  # fmt: skip


def same_text(answer: Answer) -> tuple[str, list[int], str, str | None, int]:
    """What must not depend on the way of guessing."""
    return answer.text, list(answer.tokens), answer.finish_reason, answer.stop, answer.stats.predicted_n


@pytest.fixture(scope="module")
def smols(smol: Path) -> Iterator[Callable[[int], Engine]]:
    """SMOL with itself as a draft of k guesses (0: plain decoding), each loaded once."""
    made: dict[int, Engine] = {}
    with ExitStack() as stack:

        def one(k: int) -> Engine:
            if k not in made:
                how = {"model_draft": smol, "spec_draft_n_max": k} if k else NONE
                settings = Settings(model=smol, temp=0.0, ctx_size=512, threads=1, **how)
                made[k] = stack.enter_context(Engine(settings))
            return made[k]

        yield one


@pytest.mark.parametrize("name", WAYS)
def test_an_end_token_inside_a_draft_ends_the_answer(models: Path, engine: Make, name: str) -> None:
    """B01: nothing behind an accepted end token is kept, printed or counted."""
    model = models / "clock_eos_m.gguf"
    right = ask(engine(model, **way("none", model)), A61, predict=40)
    answer = ask(engine(model, **way(name, model)), A61, predict=40)
    assert (answer.text, answer.finish_reason) == ("jkl", "stop")
    assert same_text(answer) == same_text(right)
    assert (answer.stats.total.drafted > 0) == (name != "none"), "the end token was in the middle of a draft"


@pytest.mark.parametrize("name", WAYS[1:])
def test_a_process_prints_nothing_behind_an_end_token(models: Path, name: str) -> None:
    """B01: standard output is the text and a final newline."""
    model = models / "clock_eos_m.gguf"
    done = generate(model, "-n", 40, "-p", A61, *flags_of(name, model))
    assert (done.returncode, done.stdout) == (0, b"jkl\n")


@pytest.mark.parametrize("name", WAYS)
def test_every_end_of_generation_id_ends_the_answer(tmp_path: Path, engine: Make, name: str) -> None:
    """B01: an end-of-turn token that is not the EOS token ends it too."""
    texts = [*tiny.TEXTS[: tiny.A + 12], b"<|im_end|>", *tiny.TEXTS[tiny.A + 13 :]]
    kinds = [*tiny.KINDS]
    kinds[tiny.A + 12] = tiny.T.CONTROL
    model = tiny.clock(tmp_path / "eot.gguf", texts=texts, kinds=kinds)
    prompt = A61.replace("m", "<|im_end|>")
    made = engine(model, **way(name, model))
    assert made.vocab.eos == tiny.EOS
    answer = ask(made, prompt, predict=40)
    assert (answer.n_prompt, answer.text, answer.finish_reason) == (61, "jkl", "stop")


def test_all_three_end_ids_of_smollm2_end_a_text(smols: Callable[[int], Engine]) -> None:
    """B01: ids 0, 2 and 4."""
    vocab: Vocab = smols(0).vocab
    ends = [token for token in range(vocab.size) if vocab.is_end(token)]
    assert ends == [0, 2, 4]
    for token in ends:
        s = Sequence(array("i", [28]), None, vocab, seed=0, n_predict=-1, n_ctx=512)  # type: ignore[arg-type]
        s.push(token)
        assert s.finish == "stop"


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    ("stops", "text", "which"),
    [(("pq",), "jklmno", "pq"), (("st", "mn"), "jkl", "mn"), (("klmnopqrstu",), "j", "klmnopqrstu")],
)
def test_the_stop_string_that_is_complete_first_ends_the_answer(
    models: Path, engine: Make, name: str, stops: tuple[str, ...], text: str, which: str
) -> None:
    """B02: wherever it lies in a draft; text, tokens and counts are those of the plain run."""
    model = models / "clock.gguf"
    right = ask(engine(model, **way("none", model)), A61, predict=40, stop=stops)
    made, chunks = engine(model, **way(name, model)), []
    settings = replace(made.settings, predict=40, stop=stops)
    answer = made.generate(plain_tokens(made.vocab, A61), settings, chunks.append)
    assert (answer.text, answer.finish_reason, answer.stop) == (text, "stop", which)
    assert "".join(chunks) == text, "nothing of a stop string was shown and taken back"
    assert [made.vocab.text(token) for token in answer.tokens] == list(text)
    assert same_text(answer) == same_text(right)


@pytest.mark.parametrize("name", WAYS)
def test_a_process_ends_at_the_first_of_two_stop_strings(models: Path, name: str) -> None:
    """B02: the same through the flags, in JSON."""
    model = models / "clock.gguf"
    got = told(model, "-p", A61, "-n", 40, "--stop", "st", "--stop", "mn", *flags_of(name, model))
    assert (got["text"], got["finish_reason"], got["stop"], len(got["tokens"])) == ("jkl", "stop", "mn", 3)


@pytest.mark.parametrize("name", WAYS)
def test_an_answer_has_exactly_n_tokens(models: Path, engine: Make, name: str) -> None:
    """B03: never a draft more; a draft is no longer than what is left to say."""
    model = models / "clock.gguf"
    made = engine(model, **way(name, model, n_max=16))
    for n in (0, 1, 2, 5, 16, 17, 18):
        answer = ask(made, A61, predict=n)
        total = answer.stats.total
        assert answer.text == tiny.alphabet(9 + n)[9:]
        assert (len(answer.tokens), answer.stats.predicted_n, answer.finish_reason) == (n, n, "length")
        assert total.accepted <= max(0, n - 1)
        if name == "self":
            assert total.drafted == total.accepted, "no guess was made that could not be used"
            assert total.drafted > 0 or n < 3


def test_no_tokens_asked_is_an_empty_answer_and_no_error(models: Path) -> None:
    """B03: -n 0."""
    done = generate(models / "clock.gguf", "-p", A61, "-n", 0)
    assert (done.returncode, done.stdout.strip()) == (0, b"")


MAMBA = {
    "abcabc": "tocitkvjjvjjjjjjjjjjjjjj",
    "hello": "zxopwsffqxjxopwrcgxjxopw",
    "abcabd": "aydrcimhayzxoxjxeaymulam",
}


@pytest.mark.parametrize("name", ["none", "ngram", "self", "const"])
def test_rejected_drafts_leave_recurrent_state_as_it_was(models: Path, engine: Make, name: str) -> None:
    """B04: a state that cannot forget gives the text of plain decoding."""
    model = models / "mamba.gguf"
    const = {"model_draft": models / "const_j.gguf", "spec_draft_n_max": 4, **ONE}
    made = engine(model, **(const if name == "const" else way(name, model, n_max=4)))
    drafted = 0
    for prompt, text in MAMBA.items():
        answer = ask(made, prompt, predict=24)
        assert (answer.text, answer.finish_reason) == (text, "length")
        drafted += answer.stats.total.drafted
    assert (drafted > 0) == (name != "none")


def test_a_process_drafts_for_a_recurrent_model(models: Path) -> None:
    """B04: the same through the flags; the draft file may be larger than the target (B36)."""
    got = told(
        models / "mamba.gguf", "-md", models / "const_j.gguf", "--spec-type", "draft-simple",
        "--spec-draft-n-max", 4, "-p", "abcabc", "-n", 24,
    )  # fmt: skip
    assert (models / "const_j.gguf").stat().st_size > (models / "mamba.gguf").stat().st_size
    assert got["text"] == MAMBA["abcabc"]
    assert got["speculative"]["drafted"] > got["speculative"]["accepted"]


@pytest.mark.parametrize("sizes", [("-b", 32), ("-b", 16), ("-b", 1), ("-ub", 1)])
@pytest.mark.parametrize("name", ["ngram", "self"])
def test_drafts_are_clamped_to_the_batch(models: Path, name: str, sizes: tuple[str, int]) -> None:
    """B06: a prompt and drafts longer than -b: the same text, no assertion; -b 1 drafts nothing and says so."""
    model = models / "clock.gguf"
    how = flags_of(name, model, 48)
    if name == "ngram":
        how = (*how, "--spec-ngram-simple-size-m", 48, "--spec-draft-n-max", 48)
    got = told(model, *sizes, "-c", 1024, "-p", tiny.alphabet(100), "-n", 60, *how)
    assert got["text"] == tiny.alphabet(160)[100:]
    spoken = got["speculative"]
    if sizes == ("-b", 1):
        assert spoken["drafted"] == 0
        assert len([line for line in got["stderr"] if "(-b)" in line]) == 1
    else:
        # the newest repeat is 26 letters back, so ngram-simple knows 25; the draft model guesses 48
        known, room = 25 if name == "ngram" else 48, sizes[1] - 1 if sizes[0] == "-b" else 48
        assert len(spoken["accepted_per_position"]) == min(known, room)


@pytest.fixture
def accented(models: Path, engine: Make) -> Callable[[str], Engine]:
    """The model that says a, C3, A9, a, ... with one way of guessing (the repeat is 3 tokens, 2 follow it)."""
    model = models / "clock_utf8.gguf"
    return lambda name: engine(model, **way(name, model) | {"spec_ngram_simple_size_n": 2})


@pytest.mark.parametrize("prompt", ["za", "aé" * 12 + "a"])
def test_a_character_split_over_tokens_is_whole_or_marked_once(accented: Callable[[str], Engine], prompt: str) -> None:
    """B07: -n counts tokens; the stream, the text and every way of guessing agree."""
    whole = {1: "\ufffd", 2: "é", 3: "éa", 4: "éa\ufffd", 5: "éaé", 6: "éaéa", 40: "éa" * 13 + "\ufffd"}
    for name in WAYS:
        made = accented(name)
        drafted = 0
        for n, text in whole.items():
            chunks: list[str] = []
            answer = made.generate(plain_tokens(made.vocab, prompt), replace(made.settings, predict=n), chunks.append)
            assert (answer.text, "".join(chunks)) == (text, text)
            assert (answer.stats.predicted_n, len(answer.tokens)) == (n, n)
            drafted += answer.stats.total.drafted
        assert (drafted > 0) == (name != "none")


@pytest.mark.parametrize("name", WAYS[:2])
def test_a_process_streams_the_text_of_its_json(models: Path, name: str) -> None:
    """B07: strict UTF-8 on standard output, the same text in JSON, four tokens for -n 4."""
    model = models / "clock_utf8.gguf"
    args = ("-p", "aé" * 12 + "a", "-n", 4, *flags_of(name, model))
    plain = generate(model, *args)
    got = told(model, *args)
    assert plain.stdout.decode("utf-8", "strict") == got["text"] + "\n" == "éa\ufffd\n"
    assert (got["timings"]["predicted_n"], len(got["tokens"])) == (4, 4)


@pytest.mark.parametrize("name", WAYS)
def test_emoji_and_leading_spaces_survive(tmp_path: Path, engine: Make, name: str) -> None:
    """B07: eight llamas are followed by eight llamas; the space before the first word is kept."""
    model = tiny.llamas(tmp_path / "llamas.gguf")
    made = engine(model, **way(name, model))
    answer = ask(made, LLAMAS, predict=32)
    assert (answer.text, answer.stats.total.drafted > 0) == (LLAMAS, name != "none")
    assert ask(made, "a", predict=1).text == " word"


@pytest.mark.parametrize("n", [250, 256])
def test_every_way_of_guessing_fills_the_context_to_the_same_token(models: Path, engine: Make, n: int) -> None:
    """B08: drafts end where the context does; the last token is sampled without a place of its own."""
    model = models / "clock.gguf"
    answers = []
    for name in WAYS:
        made = engine(model, **way(name, model, n_max=16), ctx_size=256)
        assert made.target.n_ctx == 256
        answers.append(ask(made, tiny.alphabet(n), predict=100))
    assert {a.text for a in answers} == {tiny.alphabet(257)[n:]}
    assert {a.finish_reason for a in answers} == {"context"}


def test_a_process_ends_well_where_the_context_ends(models: Path) -> None:
    """B08: exit 0, and JSON says why the text ends."""
    model = models / "clock.gguf"
    got = told(model, "-c", 256, "-n", 100, "-p", tiny.alphabet(250), *flags_of("self", model, 16))
    assert (got["text"], got["finish_reason"]) == ("qrstuvw", "context")


@pytest.mark.parametrize("asked", [256, 32])
def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(models: Path, asked: int) -> None:
    """B08: exit 4; the context named is the real one, rounded up as llama.cpp does."""
    done = generate(models / "clock.gguf", "-c", asked, "-p", tiny.alphabet(300), "-n", 100)
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("error:")]
    assert (done.returncode, done.stdout, len(errors)) == (4, b"", 1)
    assert "300" in errors[0]
    assert "256" in errors[0]


@pytest.mark.parametrize(("prompt", "n"), [(300, 50), (240, 100)])
def test_drafting_stops_at_the_end_of_a_smaller_draft_context(models: Path, engine: Make, prompt: int, n: int) -> None:
    """B17: the text goes on as without a draft, with one line about it."""
    model, said = models / "clock.gguf", []
    made = engine(model, said.append, **way("self", model), ctx_size=1024, ctx_size_draft=256)
    answer = ask(made, tiny.alphabet(prompt), predict=n)
    assert (answer.text, answer.finish_reason) == (tiny.alphabet(prompt + n)[prompt:], "length")
    assert (answer.stats.total.drafted > 0) == (prompt < 256)
    assert answer.stats.total.drafted <= max(0, 256 - prompt) + 1
    assert len([line for line in said if "draft" in line and "256" in line]) == 1


def test_a_draft_trained_on_a_shorter_context_changes_nothing(models: Path, tmp_path: Path) -> None:
    """B17: a draft file whose own context length is 256, in a process."""
    short = tiny.clock(tmp_path / "short.gguf", n_ctx=256)
    got = told(models / "clock.gguf", "-c", 1024, "-md", short, "-p", tiny.alphabet(240), "-n", 100)
    assert got["text"] == tiny.alphabet(340)[240:]
    assert got["speculative"]["drafted"] > 0


@pytest.mark.parametrize(("prompt", "n"), [("The capital of France is", 100), (COUNTING, 48), ("chat", 100)])
def test_greedy_text_is_the_same_with_drafts_and_without(smols: Callable[[int], Engine], prompt: str, n: int) -> None:
    """B18 (a): SMOL, byte by byte, with 1, 4 and 8 guesses a round, below 250 positions."""
    plain = smols(0)
    tokens = plain_tokens(plain.vocab, prompt)
    if prompt == "chat":
        template = ChatTemplate(plain.chat_template or "")
        question = [{"role": "user", "content": "Why is the sky blue?"}]
        tokens = chat_tokens(plain.vocab, template, question, parse_special=False)
    right = plain.generate(tokens, replace(plain.settings, predict=n))
    for k, length in ((1, 24), (4, n), (8, 24)):
        answer = smols(k).generate(tokens, replace(smols(k).settings, predict=length))
        assert answer.tokens == right.tokens[:length]
        assert right.text.startswith(answer.text)
        assert answer.stats.total.accepted >= 0.9 * answer.stats.total.drafted > 0


def test_gemma_counts_on_with_a_draft(gemma: Path, engine: Make) -> None:
    """B18 (b): weights as they are, and fewer than eight rows a pass: every row is computed as it is alone."""
    made = engine(gemma, **way("self", gemma, n_max=4), repack=False)
    answer = ask(made, COUNTING, predict=12)
    assert answer.text == ask(made, COUNTING, predict=12, spec_draft_n_max=0).text
    assert answer.stats.total.accepted > 0


def test_a_seed_pins_the_text_whatever_guesses(smols: Callable[[int], Engine]) -> None:
    """B19: the same seed gives the same text, with drafts or none, first or third in a process."""
    how: dict[str, Any] = {"predict": 40, "temp": 0.8, "seed": 42}
    right = ask(smols(0), "Once upon a time", **how)
    assert (right.seed, right.text) == (42, ask(smols(0), "Once upon a time", **how).text)
    first = ask(smols(4), "Once upon a time", **how)
    ask(smols(4), "The capital of France is", **{**how, "predict": 8})
    third = ask(smols(4), "Once upon a time", **how)
    assert first.text == third.text == right.text
    assert counts(first) == counts(third)
    assert right.text != ask(smols(0), "Once upon a time", **{**how, "seed": 43}).text


def test_without_a_seed_runs_differ_and_can_be_replayed(smols: Callable[[int], Engine]) -> None:
    """B19: the seed that was used is reported; with it the text comes again."""
    how: dict[str, Any] = {"predict": 24, "temp": 0.8}
    one, two = (ask(smols(4), "Once upon a time", **how) for _ in range(2))
    assert one.seed != two.seed
    assert one.text != two.text
    assert ask(smols(0), "Once upon a time", seed=one.seed, **how).text == one.text


def test_a_process_reports_the_seed_it_drew(models: Path) -> None:
    """B19: in JSON and on standard error, the same number."""
    got = told(models / "clock.gguf", "-p", "abc", "-n", 3)
    assert f"seed = {got['seed']}" in got["stderr"]
    assert got["seed"] != told(models / "clock.gguf", "-p", "abc", "-n", 3)["seed"]


MEASURE = """
import resource, subprocess, sys

done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL)
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(done.returncode)
"""


def test_a_long_prompt_needs_no_table_of_logits(gemma: Path, tmp_path: Path) -> None:
    """B20 (a): 262,144 logits a row, 3,000 prompt tokens, a context of 8,192: below 1.5 GB."""
    prompt, answer = tmp_path / "prompt.txt", tmp_path / "answer.json"
    prompt.write_text(" ".join(str(i) for i in range(1000, 1600)))
    done = subprocess.run(
        [
            sys.executable, "-c", MEASURE, sys.executable, "-m", "spec_cli", "generate", "-m", str(gemma), "-q",
            "-c", "8192", "-b", "2048", "-t", "1", "--spec-type", "ngram-simple", "-f", str(prompt),
            "-n", "16", "--temp", "0", "--ignore-eos", "--json", "-o", str(answer),
        ],
        capture_output=True, timeout=300, check=True,
    )  # fmt: skip
    got = json.loads(answer.read_text())
    assert got["prompt_tokens"] >= 3000
    assert len(got["tokens"]) == 16
    assert int(done.stdout.split(b"peak")[-1]) < 1.5e9


@pytest.mark.parametrize("name", WAYS)
def test_prompt_and_answer_may_be_longer_than_the_batch(models: Path, engine: Make, name: str) -> None:
    """B20 (b): -b 32, 78 letters, 20 more."""
    model = models / "clock.gguf"
    assert ask(engine(model, **way(name, model), batch_size=32), A78, predict=20).text == "abcdefghijklmnopqrst"


@pytest.mark.long
def test_two_hundred_prompts_take_no_more_memory_than_twenty(models: Path, engine: Make) -> None:
    """B20 (c): growth below 5 %."""
    made, process, sizes = engine(models / "mamba.gguf", **way("ngram", models / "mamba.gguf")), psutil.Process(), []
    for i in range(200):
        ask(made, tiny.alphabet(40 + i)[i:], predict=16)
        if i in (19, 199):
            gc.collect()
            sizes.append(process.memory_info().rss)
    assert sizes[1] < 1.05 * sizes[0]


MIXES = {
    "mamba.gguf": ["abcabc", "abcabd", "abcabc"],
    "plain.gguf": ["abcabc", "abcabd" * 9, "abcabc"],
    "swa.gguf": ["abcabc" * 9, "abcabd", "abcabc" * 9],
    "clock.gguf": [A78, "xyz", A78],
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("model", MIXES)
def test_a_request_is_answered_as_if_it_were_the_first(models: Path, engine: Make, model: str, name: str) -> None:
    """B22: text, tokens, drafted and accepted of each are those of a fresh engine."""
    path = models / model
    caches = dict.fromkeys(("cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft"), "f32")
    exact = {**caches, "flash_attn": 0}  # rounding stays below the margins
    made = engine(path, **way(name, path), **exact)
    for prompt in MIXES[model]:
        alone = ask(engine(path, **way(name, path), **exact), prompt, predict=24)
        assert counts(ask(made, prompt, predict=24)) == counts(alone)
        if model == "mamba.gguf":
            assert alone.text == MAMBA[prompt]


def test_no_guess_comes_from_the_request_before(models: Path, engine: Make) -> None:
    """B22: ngram-simple has nothing to repeat in `xyz`, whatever was asked before."""
    made = engine(models / "clock.gguf", **way("ngram", models / "clock.gguf"))
    assert ask(made, A78, predict=12).stats.total.drafted > 0
    answer = ask(made, "xyz", predict=12)
    assert (answer.text, answer.stats.total.drafted) == ("abcdefghijkl", 0)


def test_the_same_prompt_three_times_gives_the_same_answer(smols: Callable[[int], Engine], smol: Path) -> None:
    """B22: all of it is in the memory, one token is decoded again."""
    fresh = Settings(model=smol, temp=0.0, ctx_size=512, threads=1, model_draft=smol, spec_draft_n_max=4)
    with Engine(fresh) as alone:
        right = ask(alone, COUNTING, predict=16)
    answers = [ask(smols(4), COUNTING, predict=16) for _ in range(3)]
    assert {json.dumps(counts(a)) for a in answers} == {json.dumps(counts(right))}
    assert all(a.stats.prompt_n == 1 for a in answers[1:])
