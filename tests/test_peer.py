"""Our text and counts beside llama.cpp's own server (peer/, from record_peer.py), round by round."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from conftest import ask
from record_peer import heads, kernels, recording, verify_prompts, with_mtp

import spec_cli.scheduler
from spec_cli.batch.lines import Line
from spec_cli.batch.rows import parse
from spec_cli.chat.prompt import plain_tokens
from spec_cli.engine import Answer, Engine
from spec_cli.settings import Settings, flags
from spec_cli.speculate import Round, speculate
from spec_cli.values import read

NONE = f"there is no recording of llama-server with this CPU's kernels ({kernels()}): tests/record_peer.py makes it"


def recorded(what: str) -> list[dict[str, Any]]:
    """What llama-server answered on a machine like this one; nothing where nobody recorded that."""
    path = recording(what)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


CASES = recorded("counts")
FLAG_SETS = {" ".join(words): list(cases) for words, cases in groupby(CASES, key=lambda case: case["flags"])}
COUNTS = ("content", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted", "verified")
GUESSED = "an end token, guessed with more behind it"
needs_recording = pytest.mark.skipif(not CASES, reason=NONE)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[Round]:
    """Every round of every engine, as it happens."""
    seen: list[Round] = []

    def spy(*parts: Any) -> list[Round]:
        done = speculate(*parts)
        seen.extend(done)
        return done

    monkeypatch.setattr(spec_cli.scheduler, "speculate", spy)
    return seen


def settings_of(words: list[str], request: pytest.FixtureRequest) -> dict[str, Any]:
    """llama-server's flags as our settings: the same names, the same values."""
    fields = {name: field for field, flag in flags().items() for name in flag.names}
    settings: dict[str, Any] = {}
    for name, text in zip(words[::2], words[1::2], strict=True):
        if name == "-md":
            text = request.getfixturevalue("shared") / "models" / text
            settings["model_draft"] = text
        else:
            settings[fields[name]] = read(fields[name], text, name)
    if len(settings["spec_type"]) > 1 and settings["spec_draft_n_max"] == 3:
        # In llama.cpp n_max bounds draft models only; ours, if given, bounds every draft. 3 is its default.
        del settings["spec_draft_n_max"]
    return settings


def drafts_of(rounds: list[Round]) -> list[tuple[int, int]]:
    """(accepted, drafted) of each round that had a draft."""
    return [(r.accepted, len(r.draft)) for r in rounds if len(r.draft)]


def as_peer(answer: Answer, rounds: list[Round]) -> dict[str, Any]:
    """An answer in the words of peer.json."""
    stats = answer.stats
    return {
        "content": answer.text,
        "prompt_n": stats.cache_n + stats.prompt_n,  # our memory may hold the start of the last prompt
        "predicted_n": stats.predicted_n,
        "draft_n": stats.total.drafted,
        "draft_n_accepted": stats.total.accepted,
        "verified": " ".join(f"{accepted}/{drafted}" for accepted, drafted in drafts_of(rounds)),
    }


def ending(answer: Answer, last: Round) -> str:
    """How the answer ends, by the tokens of its last round."""
    n = len(last.kept)
    guessed = answer.finish_reason == "stop" and last.draft.tokens[n - 1 : n] == last.kept[-1:]
    return GUESSED if guessed and n < len(last.draft) else answer.finish_reason


def by_our_rule(case: dict[str, Any], ends: str) -> dict[str, Any]:
    """What we count where llama.cpp counts otherwise.

    An end token that was guessed is an accepted guess. For llama.cpp it is one only as the last guess of
    its draft (common/sampling.cpp, common_sampler_sample_and_accept_n); else the same token is emitted as
    the target's own, and one accepted guess less is counted.
    """
    if ends != GUESSED:
        return case
    *before, last = case["verified"].split()
    accepted, drafted = map(int, last.split("/"))
    verified = " ".join([*before, f"{accepted + 1}/{drafted}"])
    return {**case, "draft_n_accepted": case["draft_n_accepted"] + 1, "verified": verified}


@needs_recording
@pytest.mark.parametrize("cases", FLAG_SETS.values(), ids=[words.replace("--spec-", "") for words in FLAG_SETS])
def test_texts_and_counts_are_those_of_llama_server(
    cases: list[dict[str, Any]], smol: Path, engine: Callable[..., Engine], rounds: list[Round],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """One engine for all prompts; llama-server was started anew for each."""
    ours = engine(smol, ctx_size=2048, repack=False, **settings_of(cases[0]["flags"], request))
    for case in cases:
        rounds.clear()
        answer = ask(ours, case["prompt"], predict=case["n_predict"])
        right = by_our_rule(case, ending(answer, rounds[-1]))
        assert as_peer(answer, rounds) == {name: right[name] for name in COUNTS}
        assert (case["stop_type"] == "limit") == (answer.finish_reason == "length")
        assert len(answer.tokens) + answer.n_prompt < 250, "beyond it, batch shapes may change a logit"


HEADS = recorded("heads")


@pytest.mark.skipif(not HEADS, reason=NONE)
@pytest.mark.parametrize("kind", ["draft-mtp", "draft-eagle3"])
def test_heads_make_the_guesses_that_llama_server_makes(
    kind: str, smol: Path, shared: Path, engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """Drafted and accepted, and the text of plain decoding. Here two prompts; `speed.py --only kinds` has all."""
    model, flags = heads(smol, with_mtp(smol, tmp_path) if kind == "draft-mtp" else smol)[kind]
    draft = Path(flags[-1]) if "-md" in flags else None
    cases = [case for case in HEADS if case["type"] == kind]
    for n_max, prompts in ((1, [8]), (3, [0])):
        ours = engine(model, ctx_size=2048, repack=False, spec_type=(kind,), model_draft=draft, spec_draft_n_max=n_max)
        for i in prompts:
            ours.forget()
            answer = ask(ours, verify_prompts()[i], predict=96)
            theirs = cases[i][str(n_max)]
            assert [answer.stats.total.drafted, answer.stats.total.accepted] == theirs["counts"]
            assert theirs["as_plain"]
            assert answer.text == cases[i]["plain"]


@needs_recording
def test_the_recording_has_what_it_should() -> None:
    """Each count is the sum of its rounds; texts end by their length and by themselves."""
    for case in CASES:
        pairs = [tuple(map(int, pair.split("/"))) for pair in case["verified"].split()]
        assert sum(accepted for accepted, _ in pairs) == case["draft_n_accepted"] > 0
        assert sum(drafted for _, drafted in pairs) == case["draft_n"]
    assert {case["stop_type"] for case in CASES} == {"limit", "eos"}
    assert {case["type"] for case in CASES} == {"draft-simple", "ngram-simple", "ngram-simple,draft-simple"}


@pytest.mark.parametrize("n_max", [1, 4, 8])
def test_a_model_that_drafts_for_itself_is_always_right(
    smol: Path, engine: Callable[..., Engine], rounds: list[Round], n_max: int
) -> None:
    """Every draft is as long as it may be and accepted whole, so the rounds are as few as they can be.

    The second prompt meets contexts that still hold the first text.
    """
    ours = engine(smol, model_draft=smol, spec_type=("draft-simple",), spec_draft_n_max=n_max)
    for prompt, n in (("A simple recipe for bread:\n1.", 64), ("Once upon a time, in a small village by the sea,", 41)):
        rounds.clear()
        answer = ask(ours, prompt, predict=n)
        stats = answer.stats
        assert stats.total.accepted == stats.total.drafted > 0
        if answer.finish_reason == "stop":  # with other kernels the text may be another one, and end
            continue
        assert (answer.finish_reason, stats.predicted_n) == ("length", n)
        full, left = divmod(n - 1, n_max + 1)
        expected = [n_max] * full + ([left - 1] if left else [])
        assert [len(r.draft) for r in rounds[1:]] == expected
        assert drafts_of(rounds) == [(length, length) for length in expected if length]
        assert stats.rounds == -(-(n - 1) // (n_max + 1))
        assert stats.total.accepted == stats.total.drafted == sum(expected)


SAMPLED_N = 32  # of the 48 that were recorded
CHAINS = recorded("sampling")


@pytest.fixture(scope="module")
def both_ways(smol: Path) -> Iterator[list[Engine]]:
    """The demo model without drafts, and with itself as a draft."""
    plain = Settings(model=smol, ctx_size=512, threads=1, repack=False, spec_type=("none",), raw=True)
    with Engine(plain) as none, Engine(replace(plain, spec_type=None, model_draft=smol)) as drafted:
        yield [none, drafted]


@pytest.mark.skipif(not CHAINS, reason=NONE)
@pytest.mark.parametrize("i", range(len(CHAINS)))
def test_sampled_tokens_are_those_of_llama_server(both_ways: list[Engine], i: int) -> None:
    """Every sampler alone, and chains as people set them: llama-server's request fields, as a row of batch."""
    case = CHAINS[i]
    row = parse(Line(1, json.dumps(case["request"]).encode(), 0), "jsonl")
    right = case["tokens"][:SAMPLED_N]
    for engine in both_ways if i % 4 == 0 else both_ways[:1]:
        assert isinstance(row.content, str)
        settings = replace(engine.settings, **{**row.values, "predict": SAMPLED_N})
        answer = engine.generate(plain_tokens(engine.vocab, row.content), settings)
        assert list(answer.tokens) == [token for token in right if not engine.vocab.is_end(token)]
