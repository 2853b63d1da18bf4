"""draft-mtp and draft-eagle3: the text is plain decoding's, and every guess is what numpy makes of the same weights."""

from __future__ import annotations

import json
import random
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy_heads
import psutil
import pytest
import tiny_heads
from conftest import ask, cli
from hypothesis import HealthCheck, given, settings, strategies as st
from pairs import MODES, Pair
from test_batch_rows import run, told

from spec_cli.contracts import Draft, Live
from spec_cli.drafters.draft_head import MOST_UNREAD, DraftHead
from spec_cli.engine import Engine
from spec_cli.errors import BackendError, FileError, UsageError
from spec_cli.llama import hidden
from spec_cli.llama.context import ContextParams
from spec_cli.llama.fit import context_bytes
from spec_cli.llama.head import HeadSession
from spec_cli.llama.loading import LoadParams
from spec_cli.llama.model import Model
from spec_cli.llama.session import Session
from spec_cli.settings import Settings

pytestmark = pytest.mark.long

CLOSE = 0.02  # logits that are nearer to one another may change places by rounding


@pytest.fixture(params=MODES)
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    """Each mode in turn."""
    return pairs[request.param]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[array[int], list[int]]]:
    """Every draft of every head: the text before it, its guesses."""
    seen: list[tuple[array[int], list[int]]] = []
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
                    how = {"predict": 16, "temp": temp, "seed": 7}
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


beginnings = st.sampled_from(["", "abcafbceabcafbceabcafbce", "fedcbafedcbaabcdef"])
rows = st.fixed_dictionaries(
    {
        "prompt": st.builds(lambda a, b: (a + b) or "a", beginnings, st.text("abcdef", max_size=90)),
        "n_predict": st.integers(0, 30),
        "seed": st.integers(0, 99),
    },
    optional={
        "temperature": st.sampled_from([0, 0.8]),
        "n_max": st.integers(0, 3),
        "spec_type": st.sampled_from(["none", "ngram-simple"]),
    },
)


@pytest.fixture(scope="module", params=["mimo", "mimo-3", "gemma4", "eagle3", "qwen35"])
def engines(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Iterator[dict[str, Engine]]:
    """One row at a time, three, and alone: with the head, with n-grams."""
    pair: Pair = pairs[request.param]
    small = {"spec_draft_n_max": 3, "spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 4, "ctx_size": 256}
    made = {
        "1": Engine(pair.settings(parallel=1, **small), batch=True),
        "3": Engine(pair.settings(parallel=3, **small), batch=True),
        "": Engine(pair.settings(**small)),
        "none": Engine(pair.settings(**small, model_draft=None, spec_type=("none",))),
        "ngram-simple": Engine(pair.settings(**small, model_draft=None, spec_type=("ngram-simple",))),
    }
    yield made
    for engine in made.values():
        engine.close()


@pytest.mark.parametrize("n", ["1", "3"])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(mix=st.lists(rows, min_size=1, max_size=9))
def test_rows_of_a_batch_are_guessed_as_they_are_alone(
    engines: dict[str, Engine], n: str, mix: list[dict[str, Any]]
) -> None:
    """Counts too: a row that was read from the wrong state would be guessed otherwise."""
    records = run(engines[n], [json.dumps(row).encode() for row in mix])
    for record, row in zip(records, mix, strict=True):
        how = {"predict": row["n_predict"], "seed": row["seed"], "temp": row.get("temperature", 0.0)}
        way = row.get("spec_type", "")
        alone = ask(engines[way], row["prompt"], spec_draft_n_max=row.get("n_max", 3), **how)
        assert told(record) == told(alone.as_json())


def test_after_a_cut_one_token_is_decoded_again(pair: Pair, made: list[tuple[array[int], list[int]]]) -> None:
    """The state before the first new token is not kept. Where the cut is no deeper than the last pass, it is."""
    with Engine(pair.settings(spec_draft_n_max=3)) as engine:
        text = "abcafbceddca"
        first = ask(engine, text, predict=12)
        again = ask(engine, text + first.text[:-1] + "fb", predict=6)  # its last token was never decoded
        assert again.stats.cache_n == len(text) + 11
        cut = ask(engine, text[:6] + "bbbb", predict=12)
        if engine.target.can_drop_suffix:
            mirrors = pair.target.name == "gemma4.gguf"
            assert cut.stats.cache_n == (6 if mirrors else 5)
        assert check(pair, made) > 30


def test_states_of_a_whole_text_are_never_kept(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(pair.settings(spec_draft_n_max=3, ubatch_size=32)) as engine:
        reader = engine.target._reader
        assert isinstance(reader, DraftHead)
        longest, observe = [0], DraftHead.observe

        def spy(self: DraftHead, parts: Any, states: Any) -> None:
            observe(self, parts, states)
            longest[0] = max(longest[0], *(len(s.rows) for s in reader._rows._stretches.values()))

        monkeypatch.setattr(DraftHead, "observe", spy)
        for n_max in (3, 0):
            ask(engine, "abcdef" * 40, predict=200, spec_draft_n_max=n_max)
        assert 0 < longest[0] <= MOST_UNREAD + 32


def test_an_interrupted_draft_leaves_all_usable(pair: Pair, made: list[tuple[array[int], list[int]]]) -> None:
    """Stopped after each number of decodes in turn, the next answer is what it would have been."""
    with Engine(pair.settings(spec_draft_n_max=3)) as engine:
        whole = ask(engine, "abcafbceddca", predict=20)
        decodes = 0
        decode = Session._decode

        def count(self: Session, *args: Any, **more: Any) -> int:
            nonlocal decodes
            decodes -= 1
            if not decodes:
                engine.abort.set()
            return decode(self, *args, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "_decode", count)
            for stop in range(2, 20, 3):
                decodes = stop
                ask(engine, "abcafbceddca", predict=20)
                engine.abort.clear()
                decodes = 0
                made.clear()
                again = ask(engine, "abcafbceddca", predict=20)
                assert (again.text, again.stats.total.accepted) == (whole.text, whole.stats.total.accepted)
                check(pair, made)


def patched(path: Path, old: bytes, new: bytes) -> Path:
    """A copy of a file with other bytes at one place."""
    data = path.read_bytes()
    assert data.count(old) == 1
    out = path.with_name(f"patched-{len(list(path.parent.iterdir()))}.gguf")
    out.write_bytes(data.replace(old, new))
    return out


def test_files_that_do_not_fit_are_refused(pairs: dict[str, Pair], tmp_path: Path, models: Path) -> None:
    """Each of these would end the process, or never be accepted, in llama.cpp."""
    llama, eagle3 = pairs["eagle3"].target, pairs["eagle3"].head
    trunk, mtp = pairs["mimo-file"].target, pairs["mimo-file"].head
    assistant = pairs["gemma4"].head
    assert eagle3
    assert mtp
    assert assistant
    layers = tiny_heads.eagle3(tmp_path / "layers.gguf", target_layers=(0, 1, 9))
    last = tiny_heads.eagle3(tmp_path / "last.gguf", target_layers=(0, 1, 3))
    narrow = tiny_heads.eagle3(tmp_path / "narrow.gguf", target_width=32, own_embedding=True)
    small = tiny_heads.mimo2(tmp_path / "small.gguf", part="head", width=32)
    for target, head, words in (
        (pairs["gemma4"].target, mtp, r"head\.gguf is made for mimo2 models; .*gemma4\.gguf is gemma4"),
        (llama, mtp, r"head\.gguf, read hidden states .* gives none of llama models \(.*llama\.gguf\): leave -md out"),
        (trunk, small, r"small\.gguf is made for hidden states of width 32; .*trunk\.gguf has 64"),
        (llama, layers, r"layers\.gguf reads layer 9 of its target; .*llama\.gguf has 0 to 2"),
        (llama, last, r"last\.gguf reads layer 3 of its target; .*llama\.gguf has 0 to 2"),
        (llama, narrow, r"narrow\.gguf is made for hidden states of width 32; .*llama\.gguf has 64"),
        (models / "swa.gguf", eagle3, r"swa\.gguf: llama\.cpp's gemma3 models give nothing to EAGLE-3"),
        (trunk, assistant, r"assistant\.gguf looks into a gemma4 model's memory; .*trunk\.gguf is mimo2"),
        (llama, patched(eagle3, b"<0xFE>", b"<0xFG>"), r"patched.*token 257 is '<0xFG>' where the target has '<0xFE>'"),
        (trunk, patched(mtp, b"<0xFE>", b"<0xFG>"), r"patched.*token 257 is '<0xFG>' where the target has '<0xFE>'"),
    ):
        with pytest.raises(FileError, match=words):
            Engine(Settings(model=target, model_draft=head, threads=1))


@pytest.mark.parametrize(
    ("mode", "overrides", "words"),
    [
        ("eagle3", "eagle3.rope.dimension_count=int:0", r"rope\.dimension_count is 0"),
        ("eagle3", "eagle3.rope.dimension_count=int:3", r"rope\.dimension_count is 3"),
        ("eagle3", "eagle3.rope.dimension_count=int:128", r"rope\.dimension_count is 128"),
        ("eagle3", "eagle3.embedding_length_out=int:128", "says that its states have 128 values, its rows 64"),
        ("eagle3", "eagle3.target_hidden_size=int:128", "is made for hidden states of width 128|cannot be loaded"),
        ("eagle3", "eagle3.block_count=int:2", "has 2 layers; EAGLE-3 has one|cannot be loaded"),
        ("eagle3", "eagle3.expert_count=int:4", "expert_count is 4, and expert_used_count missing"),
        ("eagle3", "eagle3.rope.scaling.type=str:bogus", r"rope\.scaling\.type is bogus"),
        ("mimo", "mimo2.embedding_length_out=int:32", "says that its states have 32 values, its rows 64"),
        ("mimo", "mimo2.nextn_predict_layers=int:2", r"2 multi-token-prediction layers, and has no blk\.1\.nextn"),
        ("mimo", "mimo2.nextn_predict_layers=int:9", "says that 9 of its 3 layers predict tokens"),
        ("mimo-file", "mimo2.nextn_predict_layers=int:2", "holds multi-token-prediction layers only|has no blk"),
        ("gemma4", "gemma4-assistant.attention.head_count_kv=int:2", "is made for head_count_kv 2; .* has 1"),
        ("gemma4", "gemma4-assistant.attention.value_length=int:8", "is made for value_length in memory, 8; .* has"),
        ("gemma4", "gemma4-assistant.rope.dimension_count_swa=int:0", "rope.dimension_count_swa is 0"),
    ],
)
def test_metadata_that_would_end_the_process_are_refused(
    pairs: dict[str, Pair], mode: str, overrides: str, words: str
) -> None:
    """In a file or by --override-kv: assertions, reads out of bounds and an endless loop in llama.cpp."""
    with pytest.raises(FileError, match=words):
        Engine(pairs[mode].settings(override_kv=(overrides,)))


def test_heads_without_their_tensors_are_refused(pairs: dict[str, Pair], tmp_path: Path) -> None:
    whole = tiny_heads.mimo2(tmp_path / "whole.gguf")
    for tensor in (b"blk.2.nextn.eh_proj", b"blk.2.ffn_gate"):
        with pytest.raises(FileError, match=f"has no {tensor.decode()}"):
            Engine(Settings(model=patched(whole, tensor, tensor[:-1] + b"x"), threads=1))


def test_a_vocabulary_map_to_tokens_that_are_not_there_is_refused(pairs: dict[str, Pair], tmp_path: Path) -> None:
    head = tiny_heads.eagle3(tmp_path / "head.gguf")
    (ids,) = (t.data for t in gguf.GGUFReader(head).tensors if t.name == "d2t")
    bad = patched(head, ids.tobytes(), np.array([*ids[:-1], 285], np.int64).tobytes())
    with pytest.raises(FileError, match="its d2t names token 285; the vocabulary has 285"):
        Engine(Settings(model=pairs["eagle3"].target, model_draft=bad, threads=1))


@pytest.mark.parametrize(
    ("target", "types", "draft", "words"),
    [
        ("plain", "draft-mtp", None, r"--spec-type draft-mtp: .*plain\.gguf has no multi-token-prediction layers"),
        ("plain", "draft-mtp", "plain", r"draft model .*plain\.gguf has no multi-token-prediction layers"),
        ("plain", "draft-eagle3", None, "--spec-type draft-eagle3 needs a draft model: give -md"),
        ("plain", "draft-eagle3", "plain", r"draft-eagle3: draft model .*plain\.gguf is made for draft-simple"),
        ("llama", "draft-simple", "eagle3", r"draft-simple: draft model .*eagle3\.gguf is made for draft-eagle3"),
        ("llama", "draft-mtp", "eagle3", r"draft model .*eagle3\.gguf has no multi-token-prediction layers"),
        ("trunk", "draft-simple", "head", r"draft-simple: draft model .*head\.gguf is made for draft-mtp"),
        ("mimo", "draft-simple,draft-mtp", "plain", "draft-simple and draft-mtp would share one draft model"),
    ],
)
def test_types_that_cannot_run_are_refused(
    pairs: dict[str, Pair], models: Path, target: str, types: str, draft: str | None, words: str
) -> None:
    files = {"plain": models / "plain.gguf", "llama": pairs["eagle3"].target, "eagle3": pairs["eagle3"].head}
    files |= {"trunk": pairs["mimo-file"].target, "head": pairs["mimo-file"].head, "mimo": pairs["mimo"].target}
    with pytest.raises(UsageError, match=words):
        Engine(
            Settings(
                model=files[target], model_draft=draft and files[draft], spec_type=tuple(types.split(",")), threads=1
            )
        )


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("mimo", "draft-mtp (automatic, the model has MTP layers), n_max 3"),
        ("mimo-file", "draft-mtp (from -md), n_max 3"),
        ("gemma4", "draft-mtp (from -md), n_max 3"),
        ("eagle3", "draft-eagle3 (from -md), n_max 3"),
    ],
)
def test_the_type_follows_from_the_files(pairs: dict[str, Pair], mode: str, said: str) -> None:
    lines: list[str] = []
    Engine(pairs[mode].settings(), lines.append).close()
    assert f"speculation: {said}" in lines


def test_a_model_with_heads_of_another_width_is_a_draft_model(pairs: dict[str, Pair], tmp_path: Path) -> None:
    small = tiny_heads.mimo2(tmp_path / "small.gguf", width=32)
    lines: list[str] = []
    with Engine(pairs["mimo"].settings(model_draft=small), lines.append) as engine:
        assert ask(engine, "abc", predict=9).stats.total.drafted > 0
    assert "speculation: draft-simple (from -md), n_max 3" in lines


def test_each_of_several_layers_makes_one_guess(pairs: dict[str, Pair]) -> None:
    lines: list[str] = []
    with Engine(pairs["mimo-3"].settings(spec_draft_n_max=8), lines.append) as engine:
        assert len(ask(engine, "abc", predict=40).stats.total.accepted_at) == 3
    why = "automatic, the model has MTP layers; one guess for each of its 3 MTP layers"
    assert f"speculation: draft-mtp ({why}), n_max 3" in lines


def test_a_head_that_is_never_right_is_told_of_once(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """None of more than 200 guesses: the file may be made for another model."""
    head = tiny_heads.eagle3(tmp_path / "head.gguf")
    (ids,) = (t.data for t in gguf.GGUFReader(head).tensors if t.name == "d2t")
    useless = patched(head, ids.tobytes(), np.arange(len(ids), dtype=np.int64).tobytes())  # no letters among them
    done = cli("generate", "-m", pairs["eagle3"].target, "-md", useless, "-p", "abc", "-n", 80, "-t", 1, "--temp", 0)
    assert done.returncode == 0
    (told,) = (line for line in done.stderr.decode().splitlines() if "none of" in line)
    assert told == "speculation: none of 231 guesses was right: this draft does not help this target"


@pytest.mark.parametrize("mode", ["mimo", "gemma4", "eagle3"])
def test_the_estimate_is_what_a_heads_context_takes(pairs: dict[str, Pair], mode: str) -> None:
    """Within 20 % and 24 MiB, as of other contexts."""
    pair, params = pairs[mode], ContextParams(1 << 17, n_ubatch=32, n_batch=32, n_outputs=32)
    how = LoadParams(mtp=True)
    with (
        Model(pair.target, "target", how, dry=True) as target,
        Model(pair.head or pair.target, "draft", how, dry=True) as head,
    ):
        estimate = context_bytes(head, params, (target, params))
    assert estimate is not None
    with Model(pair.target, "target", how) as target, Model(pair.head or pair.target, "draft", how) as head:
        beside = Session(target, params)
        before = psutil.Process().memory_info().rss
        session = HeadSession(head, params, beside)
        taken = psutil.Process().memory_info().rss - before
        session.close()
        beside.close()
    assert taken <= estimate * 1.2 + 24 * (1 << 20)


def test_a_text_goes_on_to_the_end_of_the_context(pair: Pair) -> None:
    """No draft, no hidden state and no position too many."""
    prompt = "abcafbceddca" * 3
    with Engine(pair.settings(ctx_size=256, model_draft=None, spec_type=("none",))) as engine:
        alone = ask(engine, prompt)
    with Engine(pair.settings(ctx_size=256, spec_draft_n_max=8)) as engine:
        for _ in range(2):
            answer = ask(engine, prompt)
            assert (answer.text, answer.finish_reason) == (alone.text, "context")
            assert answer.stats.total.drafted > 100


@pytest.mark.parametrize("mode", ["mimo", "mimo-3", "gemma4", "qwen35"])
def test_a_head_after_ngrams(pairs: dict[str, Pair], mode: str, made: list[tuple[array[int], list[int]]]) -> None:
    """Where another drafter is asked first, the head reads later what it missed."""
    pair, types = pairs[mode], ("ngram-simple", "draft-mtp")
    sizes = {"spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 2, "spec_draft_n_max": 3}
    with Engine(pair.settings(spec_type=types, **sizes)) as engine:
        stats = ask(engine, "abcafbceddca", predict=150).stats
    assert {name for name, guesses in stats.by_drafter.items() if guesses.drafted} == set(types)
    assert check(pair, made) > 3


def test_a_build_without_the_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "llama_get_ctx_other"
    monkeypatch.setitem(hidden._SYMBOLS, name, (("_ZNope",), [], None))
    hidden.symbol.cache_clear()
    with pytest.raises(BackendError, match=f"this build of llama.cpp does not export {name}, which draft-mtp and"):
        hidden.symbol(name)
    hidden.symbol.cache_clear()


@pytest.mark.parametrize("mode", ["mimo", "eagle3"])
def test_numbers_lines_and_colours_are_as_for_others(pairs: dict[str, Pair], mode: str) -> None:
    pair, name = pairs[mode], "draft-eagle3" if pairs[mode].head else "draft-mtp"
    files = ("-m", pair.target, *(("-md", pair.head) if pair.head else ()))
    args = ("generate", *files, "-p", "abcafbceddca", "-n", 60, "-t", 1, "--temp", 0, "-v")
    done = cli(*args, "--json")
    told = json.loads(done.stdout)
    drafted, accepted = told["timings"]["draft_n"], told["timings"]["draft_n_accepted"]
    assert told["speculative"]["types"] == [name]
    assert drafted > accepted > 0
    lines = done.stderr.decode().splitlines()
    assert (
        f"draft acceptance rate = {accepted / drafted:.5f} ({accepted:5d} accepted / {drafted:5d} generated)" in lines
    )
    (line,) = (line for line in lines if line.startswith("statistics"))
    assert line.startswith(f"statistics {name:>16}: #calls(b,g,a) =    1")
    assert f"#gen tokens = {drafted:6d}, #acc tokens = {accepted:5d}" in line
    coloured = cli(*args, "--color", "on").stdout.decode()
    assert re.sub(r"\x1b\[\d*m", "", coloured) == told["text"] + "\n"
    assert coloured.count("\x1b[") > 2


def test_a_full_cache_gives_away_what_lies_behind_a_window(tmp_path: Path) -> None:
    """With --swa-full too, llama.cpp overwrites cells that a window has left behind: such a beginning is not lent."""
    model = tiny_heads.gemma4(tmp_path / "gemma4.gguf", window=16)
    rng = random.Random(4)
    start = "".join(rng.choices("abcdef", k=100))
    asked = [(start + "".join(rng.choices("abcdef", k=rng.randrange(60))), rng.randrange(5, 60)) for _ in range(14)]
    small = {"ctx_size": 256, "spec_type": ("none",), "swa_full": True}
    with Engine(Pair(model, None).settings(**small)) as engine:
        alone = []
        for prompt, n in asked:
            engine.forget()
            alone.append(ask(engine, prompt, predict=n).text)
    for parallel in (2, 3, 5):
        with Engine(Pair(model, None).settings(**small, parallel=parallel), batch=True) as engine:
            records = run(engine, [json.dumps({"prompt": text, "n_predict": n}).encode() for text, n in asked])
            assert [record["text"] for record in records] == alone


def test_rows_of_a_head_with_a_window(pairs: dict[str, Pair]) -> None:
    """Guesses may push out what the window still needs: that costs acceptance, in a batch, and nothing else."""
    rng = random.Random(6)
    start = "".join(rng.choices("abcdef", k=60))
    asked = [(start + "".join(rng.choices("abcdef", k=rng.randrange(60))), rng.randrange(5, 60)) for _ in range(14)]
    with Engine(pairs["mimo-window"].settings(ctx_size=256)) as engine:
        alone = [ask(engine, prompt, predict=n) for prompt, n in asked]
    for parallel in (2, 3, 5):
        with Engine(pairs["mimo-window"].settings(ctx_size=256, parallel=parallel), batch=True) as engine:
            records = run(engine, [json.dumps({"prompt": text, "n_predict": n}).encode() for text, n in asked])
            assert [record["text"] for record in records] == [answer.text for answer in alone]
            accepted = sum(record["timings"]["draft_n_accepted"] for record in records)
            assert accepted == pytest.approx(sum(answer.stats.total.accepted for answer in alone), rel=0.2)
