"""A row never ends a run: whatever goes wrong with it is its record, and its neighbours do not notice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from cases import said
from conftest import ask, cli
from test_batch import batch, jsonl, records
from test_batch_rows import run, run_at_once

from spec_cli.batch.lines import Lines
from spec_cli.batch.run import Run
from spec_cli.config import resolve
from spec_cli.contracts import Draft, Live
from spec_cli.engine import Engine
from spec_cli.errors import BackendError, Interrupted, UsageError
from spec_cli.llama.sampler import Sampler
from spec_cli.settings import Settings, row_fields

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
SMALL: dict[str, Any] = {"threads": 1, "ctx_size": 256, "temp": 0.0, "predict": 3, "parallel": 3}


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Engine]:
    with Engine(Settings(model=models / "clock.gguf", chat_template=TEMPLATE, **SMALL), batch=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def real(models: Path) -> Iterator[Engine]:
    """With real attention, so that a wrong memory gives a wrong text."""
    with Engine(Settings(model=models / "plain.gguf", raw=True, **{**SMALL, "predict": 12}), batch=True) as engine:
        yield engine


# ---- biases


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ([[269, "-inf"]], "the bias '-inf' for 269 where a number or false should be"),
        (5, "5 is neither a list"),
        (0.5, "0.5 is neither a list"),
        (True, "True is neither a list"),
        ("5", "'5' is not ID+BIAS"),
        ({"269": None}, "the bias None for '269'"),
        ({"269": "5"}, "the bias '5' for '269'"),
        ({"269": [1]}, "the bias [1] for '269'"),
        ({"269": True}, "the bias True for '269'"),
        ([[269]], "[269] where [ID, BIAS] should be"),
        ([269, 1], "269 where [ID, BIAS] should be"),
        ([[[1], 1]], "'[1]+1' is not ID+BIAS"),
        ([[269.5, 1]], "'269.5+1' is not ID+BIAS"),
        ({"1" * 5000: 1}, "is not ID+BIAS"),
        (f"269+{'1' * 100000}x", "is not ID+BIAS"),
        ({"9999": 1}, "the model has the tokens 0 to 284"),
    ],
)
def test_a_bias_that_is_none_is_that_rows_error(engine: Engine, bias: Any, words: str) -> None:
    rows = [{"prompt": "abc"}, {"prompt": "cde", "logit_bias": bias}, {"prompt": "xyz"}]
    first, bad, last = run(engine, [json.dumps(row).encode() for row in rows])
    assert (first["text"], last["text"]) == ("def", "abc")
    assert words in bad["error"]["reason"]
    assert len(bad["error"]["reason"]) < 400


@pytest.mark.parametrize(
    ("bias", "text"),
    [
        ({str(tiny.A + 3): False}, ""),
        ([[tiny.A + 3, False]], ""),
        ({str(tiny.A + 3): 1e-7}, "def"),
        ([[tiny.A + 9, 1e3]], "jjj"),
        ([[tiny.A + 9, 10**400]], "jjj"),
        ([f"{tiny.A + 9}+1e3"], "jjj"),
        (f"{tiny.A + 9}+1E3", "jjj"),
        ({}, "def"),
        ([], "def"),
        (None, "def"),
    ],
)
def test_a_bias_is_any_number_json_has(engine: Engine, bias: Any, text: str) -> None:
    (got,) = run(engine, [json.dumps({"prompt": "abc", "logit_bias": bias}).encode()])
    assert got["text"].removeprefix("#") == text or (text == "" and got["text"][:1] != "d")


def test_a_bias_in_models_toml_that_is_none_is_a_usage_error(models: Path, tmp_path: Path) -> None:
    config = tmp_path / "models.toml"
    for value in ("5", "true", "[[269, 'x']]", "{ 269 = 'x' }"):
        config.write_text(f"[defaults]\nlogit-bias = {value}\n")
        with pytest.raises(UsageError, match=r"models.toml \[defaults\] logit-bias: "):
            resolve({"config": str(config)}, {})
    config.write_text("[defaults]\nlogit-bias = { 269 = 1e-7 }\n")
    assert resolve({"config": str(config), "model": "x.gguf"}, {}).logit_bias == ("269+1e-07",)


# ---- what nobody foresaw


def test_a_deep_text_is_that_rows_error(engine: Engine) -> None:
    deep = "[" * 5000 + "]" * 5000
    odd = [
        {"prompt": "a", "json_schema": deep}, {"prompt": "a", "chat_template_kwargs": deep},
        {"prompt": "a", "grammar": 'root ::= "a"', "logit_bias": json.loads("[" * 400 + "]" * 400)},
        {"prompt": "a", "id": json.loads("[" * 400 + "]" * 400), "temp": "x"},
    ]  # fmt: skip
    lines = [json.dumps(row).encode() for row in odd] + [b'{"prompt": "a", "id": ' + deep.encode() + b"}"]
    got = run(engine, [*lines, b'{"prompt": "abc"}'])
    assert got.pop()["text"] == "def"
    assert ["error" in record for record in got] == [True] * 5


@pytest.mark.parametrize(
    "error", [ValueError("x\ny"), RecursionError("deep"), MemoryError(), BackendError("no logits")]
)
def test_preparing_a_row_may_raise_anything(engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(text: str, *args: Any) -> None:
        if text == "bad":
            raise error

    monkeypatch.setattr("spec_cli.chat.prompt._has_control", lambda vocab, text: refuse(text))
    rows = [b'{"prompt": "abc"}', b'{"prompt": "bad", "id": 7}', b'{"prompt": "xyz"}']
    first, bad, last = run(engine, rows)
    assert (first["text"], last["text"]) == ("def", "abc")
    right = "no logits" if isinstance(error, BackendError) else f"this should not happen: {type(error).__name__}: "
    assert bad["error"]["reason"].startswith(right)
    assert (bad["id"], bad["error"]["line"]) == (7, 2)
    assert "\n" not in bad["error"]["reason"]


PROMPTS = ["thequickbrownfox", "abcdef", "xyz", "thequickbrownfoxjumps"]


def mix() -> list[dict[str, Any]]:
    """Rows of which the second fails; seed 13 marks it."""
    return [{"prompt": p, "seed": 13 if i == 1 else 1, "id": i} for i, p in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def right(real: Engine) -> dict[str, str]:
    """What each of them is alone."""
    return {p: ask(real, p).text for p in PROMPTS}


def neighbours(real: Engine, right: dict[str, str]) -> list[dict[str, Any]]:
    """Run the mix and return the failed rows; all others are what they are alone, then and later."""
    assert len(set(right.values())) == 4
    failed = []
    for _ in range(2):
        for record, row in zip(run_at_once(real, mix()), mix(), strict=True):
            if "error" in record:
                assert row["seed"] == 13
                failed.append(record)
            else:
                assert record["text"] == right[row["prompt"]]
    assert real.scheduler.idle
    assert sorted(real.scheduler._free) == [0, 1, 2]
    return failed


@pytest.mark.parametrize("at", [1, 2, 7])
def test_a_row_that_fails_amid_its_answer_leaves_the_shared_pass(
    real: Engine, right: dict[str, str], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """At its first token, at a later one: its place is free again, and nobody else notices."""
    sample, made = Sampler.sample, dict[int, int]()
    init = Sampler.__init__

    def remember(self: Sampler, vocab: Any, settings: Settings, *rest: Any) -> None:
        init(self, vocab, settings, *rest)
        made[id(self)] = at if settings.seed == 13 else -1

    def fail(self: Sampler, row: Any) -> int | None:
        made[id(self)] -= 1
        if not made[id(self)]:
            raise ZeroDivisionError("a sampler")
        return sample(self, row)

    monkeypatch.setattr(Sampler, "__init__", remember)
    monkeypatch.setattr(Sampler, "sample", fail)
    failed = neighbours(real, right)
    assert [r["error"]["reason"] for r in failed] == [
        "this should not happen: ZeroDivisionError: a sampler (--debug shows where)"
    ] * 2


class Faulty:
    """A drafter that fails for one row. step: begin, read, draft or accepted."""

    name = "ngram-simple"

    def __init__(self, step: str, is_bad: Callable[[Any], bool]) -> None:
        self.step, self.is_bad = step, is_bad

    def _do(self, step: str, texts: Any) -> None:
        if step == self.step and any(self.is_bad(s) for s in texts):
            raise LookupError(step)

    def begin(self, sequence: Live) -> None:
        self._do("begin", [sequence])

    def read(self, prompts: Any, ends: Any) -> None:
        self._do("read", prompts)

    def draft(self, live: Any) -> list[Draft]:
        self._do("draft", live)
        return [Draft() for _ in live]

    def accepted(self, sequence: Live, n: int) -> None:
        self._do("accepted", [sequence])


@pytest.mark.parametrize("step", ["begin", "read", "draft", "accepted"])
def test_a_drafter_that_fails_for_one_row_fails_for_no_other(
    real: Engine, right: dict[str, str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bad = real.vocab.tokenize(PROMPTS[1].encode(), add_special=False, parse_special=False)
    faulty = Faulty(step, lambda s: s.tokens[: len(bad)] == bad)
    monkeypatch.setattr(real.drafter, "_drafters", [faulty])
    failed = neighbours(real, right)
    assert [r["error"]["reason"] for r in failed] == [
        f"this should not happen: LookupError: {step} (--debug shows where)"
    ] * 2


def test_what_is_no_rows_fault_still_ends_the_run(real: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp fails, somebody interrupts, the disk is full: no record blames a row for it."""
    rows = [json.dumps(row).encode() for row in mix()]
    forward = real.target.forward
    for error in (BackendError("llama.cpp returned -3"), Interrupted("interrupted")):

        def fail(passes: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(real.target, "forward", fail)
        with pytest.raises(type(error)):
            run(real, rows)
        real.scheduler.drop()
    monkeypatch.setattr(real.target, "forward", forward)

    def full(self: Any, index: int, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spec_cli.batch.order.InOrder.put", full)
    with pytest.raises(OSError, match="No space"):
        run(real, rows)
    real.scheduler.drop()


def test_debug_shows_where_a_row_failed_and_resume_passes_it(models: Path, tmp_path: Path) -> None:
    """A template that breaks for one text: exit 1, its record in the file, and --resume goes on behind it."""
    out, template = tmp_path / "out.jsonl", "{{ messages[0].content }}{{ 1 // (messages[0].content | length - 2) }}"
    rows = jsonl({"prompt": "abc"}, {"prompt": "ab"}, {"prompt": "xyza"})
    args = ("-n", 3, "--chat-template", template, "-o", out, "--debug")
    done = batch(models / "clock.gguf", *args, stdin=rows)
    assert done.returncode == 1
    before = out.read_bytes()
    assert ["error" in r for r in records(before)] == [False, True, False]
    assert b"Traceback" not in done.stderr, "that was foreseen"
    again = batch(models / "clock.gguf", *args, "--resume", stdin=rows + jsonl({"prompt": "abcd"}))
    assert again.returncode == 1
    assert out.read_bytes().startswith(before)
    assert len(records(out.read_bytes())) == 4


def test_a_traceback_of_a_row_is_shown_with_debug_only(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("spec_cli.chat.prompt._has_control", fail)
    for debug in (False, True):
        run(engine, [b'{"prompt": "abc"}'], debug=debug)
        assert ("Traceback" in capsys.readouterr().err) == debug
    run(engine, [b"{}"], debug=False)


# ---- settings of the run


DEEP = "{{ " + "[" * 3000 + "]" * 3000 + " }}"


@pytest.mark.parametrize(
    ("values", "template", "words"),
    [
        ({"chat_template_kwargs": "[1]"}, TEMPLATE, "is not a JSON object"),
        ({"chat_template_kwargs": "[" * 5000}, TEMPLATE, "--chat-template-kwargs: not JSON"),
        ({"logit_bias": ("9999+1",)}, TEMPLATE, "the model has the tokens 0 to 284"),
        ({"grammar": "root ::= ("}, TEMPLATE, "grammar"),
        ({}, "{% if", "cannot be read"),
        ({}, DEEP, "cannot be read: maximum recursion depth"),
        ({}, "{% for a in b %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
    ],
)
def test_settings_that_no_row_could_have_are_refused_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], template: str, words: str
) -> None:
    monkeypatch.setattr(engine, "settings", engine.settings)
    monkeypatch.setattr(engine, "chat_template", template)
    with pytest.raises(UsageError, match=words):
        run(engine, [b'{"prompt": "abc"}'], **values)


def test_a_template_that_breaks_the_compiler_is_a_usage_error(models: Path) -> None:
    for command in ("generate", "batch"):
        args = ("-p", "a") if command == "generate" else ()
        done = cli(command, "-m", models / "clock.gguf", *args, "--chat-template", DEEP, stdin=b'{"prompt": "a"}')
        assert (done.returncode, done.stdout) == (2, b"")
        assert "cannot be read" in said(done)[-1] or "--resume" in said(done)[-1]
    assert batch(models / "clock.gguf", "--chat-template", DEEP, "--raw", stdin=b'{"prompt": "a"}').returncode == 0


# ---- any JSON at all

WORDS = [
    "",
    " ",
    "a",
    "abc",
    "<s>",
    "é",
    "\u2028",
    "👍",
    "\x00",
    "1",
    "-inf",
    "nan",
    "true",
    "none",
    "[",
    "{%",
    "user",
]
NUMBERS = [0, 1, -1, 2, 0.5, 1e-7, -0.0, 1e6, 1e39, 1e308, 2**31, 2**63, 10**30, 10**400]
ODD = [float("inf"), float("nan"), "\ud800"]
NAMES = [
    *row_fields(), "id", "custom_id", "method", "url", "body", "prompt", "messages", "stream", "n", "tools",
    "tool_choice", "response_format", "top_logprobs", "stream_options", "suffix", "echo", "user", "model", "store",
    "audio", "functions", "frequency-penalty", "temprature", "",
]  # fmt: skip
SCHEMAS = [
    {},
    {"type": "string"},
    {"type": "object", "properties": {"a": {"type": "integer"}}},
    {"enum": ["a", 1]},
    {"a": 1},
]


def anything(rng: random.Random, depth: int = 0) -> Any:
    if rng.random() < 0.02:
        return rng.choice(ODD)
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return rng.choice(WORDS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice([None, True, False])
    if kind == 5:
        return (
            json.loads("[" * (n := rng.choice([1, 50, 300])) + "]" * n) if rng.random() < 0.1 else rng.choice(SCHEMAS)
        )
    if kind == 6:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice([*WORDS, "269", "type", "role"]): anything(rng, depth + 1) for _ in range(rng.randrange(4))}


def message(rng: random.Random) -> Any:
    if rng.random() < 0.1:
        return anything(rng)
    parts = [{"type": "text", "text": "ab"}, {"type": rng.choice(["text", "image"]), "text": anything(rng)}]
    made = {
        "role": rng.choice(["user", "assistant", "system", "developer", "tool", 3]),
        "content": rng.choice(["abc", "x", None, parts]),
    }
    for _ in range(rng.randrange(2)):
        made[rng.choice(["name", "refusal", "tool_calls", "reasoning_content", "audio"])] = rng.choice(
            [None, anything(rng)]
        )
    return made


def some_row(rng: random.Random) -> Any:
    """An object that is nearly a row, or anything else."""
    if rng.random() < 0.03:
        return anything(rng)
    row: dict[str, Any] = {"prompt": rng.choice(["abc", "xyz", "abc", "a", "é", anything(rng)])}
    if rng.random() < 0.3:
        row = {"messages": [message(rng) for _ in range(rng.randrange(4))]}
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        row[rng.choice(NAMES)] = anything(rng)
    if rng.random() < 0.1:
        row = {
            "custom_id": anything(rng),
            "url": rng.choice(["/v1/completions", "/v1/chat/completions", 3]),
            "body": row,
        }
    return row


def from_file(engine: Engine, path: Path, rows: list[bytes]) -> list[dict[str, Any]]:
    """As `run`, for more rows than a pipe holds."""
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    written: list[str] = []
    engine.settings = replace(engine.settings, format="jsonl")
    with path.open("rb") as file:
        lines = Lines(file.fileno(), 2 * engine.n_rows)
        one = Run(engine, lines, written.append, name="", bound={}, answered={}, stop=lambda: False)
        while one.step(lambda: lines.take(wait=True)):
            pass
    return [json.loads(text) for text in written]


def test_any_json_gives_one_record_a_row(engine: Engine, tmp_path: Path) -> None:
    """2,000 rows of odd values in every field: each is answered or says why not, strictly in JSON."""
    rng = random.Random(5)
    rows = [
        json.dumps(some_row(rng), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass") for _ in range(2000)
    ]
    rows = [row.replace(b"\n", b" ") if rng.random() < 0.98 else row[: len(row) // 2] + b"}" for row in rows]
    got = from_file(engine, tmp_path / "rows", rows)
    assert [record["index"] for record in got] == list(range(2000))
    assert json.dumps(got, allow_nan=False, ensure_ascii=False).encode()
    answered = sum("text" in record for record in got)
    unforeseen = [record for record in got if "should not happen" in record.get("error", {}).get("reason", "")]
    assert not unforeseen
    assert answered + sum(set(record["error"]) == {"line", "reason"} for record in got if "error" in record) == 2000
    assert 300 < answered < 1700
    assert run(engine, [b'{"prompt": "abc"}'])[0]["text"] == "def"
