"""Constrained answers: always what the grammar allows, whoever guesses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from cases import answer_of, generate, refused
from conftest import ask
from hypothesis import HealthCheck, given, settings, strategies as st

from spec_cli.engine import Engine
from spec_cli.settings import Settings

LETTERS = 'root ::= ("ab" | "ba" | "c"){2,5} "z"'
ALLOWED = re.compile("(ab|ba|c){2,5}z")
ENDLESS = "root ::= [a-m]+"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
    "required": ["name", "big"],
}
NGRAM = {"spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 6}


def ways(target: Path, draft: Path) -> dict[str, dict[str, Any]]:
    return {
        "none": {"spec_type": ("none",)},
        "ngram-simple": {"spec_type": ("ngram-simple",), **NGRAM},
        "itself": {"model_draft": target, "spec_draft_n_max": 5},
        "another": {"model_draft": draft, "spec_draft_n_max": 4},
        "both": {"spec_type": ("ngram-simple", "draft-simple"), "model_draft": draft, **NGRAM},
    }


@pytest.fixture(scope="module", params=["plain", "swa", "mamba", "hybrid"])
def engines(request: pytest.FixtureRequest, models: Path) -> Iterator[dict[str, Engine]]:
    file = models / f"{request.param}.gguf"
    exact = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": 0}
    plain = Settings(model=file, threads=1, ctx_size=256, **exact)  # type: ignore[arg-type]
    made = {name: Engine(replace(plain, **how)) for name, how in ways(file, models / "clock.gguf").items()}
    yield made
    for engine in made.values():
        engine.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    prompt=st.text(tiny.LETTERS, min_size=1, max_size=30),
    temp=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 99),
    n=st.integers(1, 20),
    grammar=st.sampled_from([LETTERS, ENDLESS]),
    penalty=st.sampled_from([1.0, 1.3]),
)
def test_every_drafter_gives_the_constrained_text_of_none(
    engines: dict[str, Engine], prompt: str, temp: float, seed: int, n: int, grammar: str, penalty: float
) -> None:
    """The same text as without drafts at any temperature; always a valid beginning, whole when it stops."""
    how = {"temp": temp, "seed": seed, "predict": n, "grammar": grammar, "repeat_penalty": penalty}
    right = ask(engines["none"], prompt, **how)
    for engine in engines.values():
        answer = ask(engine, prompt, **how)
        assert (answer.text, answer.finish_reason) == (right.text, right.finish_reason)
    assert len(right.text) <= n
    if grammar == ENDLESS:
        assert set(right.text) <= set("abcdefghijklm")
    elif right.finish_reason == "stop":
        assert ALLOWED.fullmatch(right.text)
    else:
        assert re.match("(ab|ba|c)*[ab]?z?$", right.text)


def test_an_answer_ends_where_the_grammar_has_nothing_more(models: Path) -> None:
    """Without an end token that could be sampled, no candidate is left: no abort, the text stops."""
    with Engine(Settings(model=models / "plain.gguf", threads=1, ctx_size=256, temp=0.0, ignore_eos=True)) as engine:
        answer = ask(engine, "hello", grammar='root ::= "xyz"', predict=9)
    assert (answer.text, answer.finish_reason) == ("xyz", "stop")


@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_json_by_schema_from_a_real_model_with_every_drafter(smol: Path, temp: float) -> None:
    """SmolLM2: the object that the schema describes, the same with drafts as without at temperature 0."""
    texts = []
    for how in (ways(smol, smol)[name] for name in ("none", "ngram-simple", "itself")):
        plain = Settings(model=smol, threads=1, ctx_size=512, temp=temp, seed=7, json_schema=json.dumps(SCHEMA))
        with Engine(replace(plain, **how)) as engine:
            answer = ask(engine, "A city in France as JSON:", predict=60)
            texts.append(answer.text)
            if answer.finish_reason == "stop":
                got = json.loads(answer.text)
                assert set(got) == {"name", "big"}
                assert isinstance(got["big"], bool)
                assert len(got["name"]) <= 12
    assert texts[0].lstrip().startswith("{")
    assert len(set(texts)) == 1


BAD = [
    (("--grammar", 'root ::= "a" ('), "line 1, column 15: "),
    (("--grammar", 'root ::= "a"\nb :: "c"'), "line 2, column 3: expecting ::="),
    (("--grammar", 'root ::= "a" other'), "line 1, column 14: Undefined rule identifier 'other'"),
    (("--grammar", 'start ::= "a"'), "does not contain a 'root' symbol"),
    (("--grammar", 'root ::= root "a"'), "left recursion"),
    (("-j", "{bad"), "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
    (("-j", '{"$ref": "https://example.org/x.json"}'), "references to the network are not followed"),
    (("-j", '{"type": "objekt"}'), "#: cannot be enforced: Invalid type: objekt"),
    (("-j", "{}", "--grammar", 'root ::= "a"'), "--grammar and -j/--json-schema: give one of them"),
]


@pytest.mark.parametrize(("args", "words"), BAD)
def test_a_bad_grammar_is_refused_with_its_place(models: Path, args: tuple[str, ...], words: str) -> None:
    assert words in refused(generate(models / "clock.gguf", "-p", "abc", *args), 2)


def test_grammars_come_from_files_and_rows_too(models: Path, tmp_path: Path) -> None:
    from test_batch import batch, jsonl, records

    (tmp_path / "g.gbnf").write_text('root ::= "yes" | "no"\n')
    (tmp_path / "s.json").write_text('{"enum": ["maybe"]}')
    model = models / "plain.gguf"
    for flag, file, texts in (("--grammar-file", "g.gbnf", ("yes", "no")), ("-jf", "s.json", ('"maybe"',))):
        assert answer_of(generate(model, "-p", "abc", flag, tmp_path / file, "--json"))["text"] in texts
    assert "--grammar-file: " in refused(generate(model, "-p", "abc", "--grammar-file", tmp_path / "none"), 3)
    rows = [
        {"prompt": "abc", "grammar": 'root ::= "hello"'},
        {"prompt": "abc", "json_schema": {"const": 7}},
        {"prompt": "abc", "response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "x"}}}},
        {"prompt": "abc", "grammar": "root ::= ("},
        {"prompt": "abc", "response_format": {"type": "xml"}},
        {"prompt": "abc", "n_predict": 4},
    ]
    got = records(batch(model, "-np", 3, "--grammar", 'root ::= "run"', stdin=jsonl(*rows)).stdout)
    assert [r.get("text") for r in got] == ["hello", "7", '"x"', None, None, "run"]
    assert got[3]["error"]["reason"].startswith("--grammar: line 1, column")
