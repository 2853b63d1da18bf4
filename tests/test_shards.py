"""A model in several files is one model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cases import generate, refused
from conftest import ask, cli
from pairs import Pair
from shards import split

from spec_cli.batch.journal import binding
from spec_cli.engine import Engine
from spec_cli.llama.header import check_file
from spec_cli.settings import Settings

pytestmark = pytest.mark.long

PROMPT = "abc def"


def answer(settings: Settings) -> tuple[list[int], tuple[str, ...], int]:
    """The tokens of a greedy answer, who guessed, and how many of the guesses were right."""
    with Engine(settings) as engine:
        result = ask(engine, PROMPT, predict=24)
    return list(result.tokens), result.types, result.stats.total.accepted


@pytest.mark.parametrize("empty_first", [True, False])
@pytest.mark.parametrize("name", ["mimo", "qwen35"])
def test_mtp_layers_are_found_in_any_shard(
    pairs: dict[str, Pair], tmp_path: Path, name: str, empty_first: bool
) -> None:
    """tmac1973/llama-toolchest#155, Mesh-LLM/mesh-llm#1199: a first shard without tensors; ggml-org/llama.cpp#6187."""
    whole = pairs[name]
    first, *others = split(whole.target, tmp_path / "m", 12, empty_first=empty_first)
    assert others
    assert replace(check_file(first, "target"), path=whole.target) == check_file(whole.target, "target")
    right = answer(whole.settings())
    assert right[1] == ("draft-mtp",)
    assert answer(whole.settings(model=first)) == right


@pytest.mark.parametrize("name", ["mimo-file", "gemma4", "eagle3", "eagle3-own"])
def test_a_split_head_guesses_as_the_whole_one(pairs: dict[str, Pair], tmp_path: Path, name: str) -> None:
    whole = pairs[name]
    assert whole.head
    first = split(whole.head, tmp_path / "head", 4, empty_first=True)[0]
    right = answer(whole.settings())
    assert right[1] != ("ngram-simple",)
    assert answer(whole.settings(model_draft=first)) == right


def test_a_split_head_is_checked_in_every_shard(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """Its own vocabulary names a token that the target does not have, in the last shard."""
    import numpy as np
    from gguf_mutants import File

    pair = pairs["eagle3-own"]
    assert pair.head
    file = File.read(pair.head.read_bytes())
    d2t = next(t for t in file.tensors if t.name == b"d2t")
    data = bytearray(file.data)
    data[d2t.offset : d2t.offset + 8] = np.int64(9999).tobytes()
    file.data = bytes(data)
    (tmp_path / "bad.gguf").write_bytes(file.bytes()[0])
    first = split(tmp_path / "bad.gguf", tmp_path / "s", 4, empty_first=True)[0]
    done = generate(pair.target, "-md", first, "-p", "abc", "--raw")
    assert "its d2t names token 9999" in refused(done, 3)


@pytest.fixture
def shards(models: Path, tmp_path: Path) -> list[Path]:
    """The clock in three files."""
    return split(models / "clock.gguf", tmp_path / "clock", 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s[1].unlink(), "shard 2 of 3 is missing: {1}"),
        (lambda s: (s[1].unlink(), s[2].unlink()), "shard 2 of 3 is missing: {1} (and 1 more)"),
        (lambda s: s[1].write_bytes(s[2].read_bytes()), "{1} is no shard of it: it says that it is 3 of 3"),
        (lambda s: os.truncate(s[2], 500), "{2} is cut short: its tensors need 164064 bytes, it has 500"),
        (lambda s: os.truncate(s[2], 60), "shard 3, {2}, has a header that cannot be read"),
    ],
)
def test_what_is_wrong_with_a_shard_is_named(
    models: Path, shards: list[Path], change: Callable[[list[Path]], object], words: str
) -> None:
    """Before llama.cpp is called, for the target and for the draft model."""
    change(shards)
    words = words.format(*shards)
    assert words in refused(generate(shards[0], "-p", "abc"), 3)
    assert words in refused(generate(models / "clock.gguf", "-md", shards[0], "-p", "abc"), 3)


def test_shards_of_two_models_are_not_one_model(shards: list[Path], pairs: dict[str, Pair], tmp_path: Path) -> None:
    other = split(pairs["mimo"].target, tmp_path / "other", 12)
    assert len(other) == len(shards)
    shards[1].write_bytes(other[1].read_bytes())
    assert "its shards hold 19 tensors where 12 should be: they are not of one model" in refused(
        generate(shards[0], "-p", "abc"), 3
    )


def test_another_shard_than_the_first_is_refused_with_the_first_ones_name(shards: list[Path], tmp_path: Path) -> None:
    line = refused(generate(shards[1], "-p", "abc"), 3)
    assert line.endswith(f"{shards[1]} is shard 2 of 3: give the first shard: {shards[0]}")
    renamed = shards[0].rename(tmp_path / "renamed.gguf")
    assert "it must end in -00001-of-00003.gguf" in refused(generate(renamed, "-p", "abc"), 3)


def test_resume_sees_a_change_in_any_shard(shards: list[Path], tmp_path: Path) -> None:
    """The size of a model is that of all its shards."""
    settings, one = Settings(model=shards[0]), shards[0].stat().st_size
    total = sum(shard.stat().st_size for shard in shards)
    assert binding(settings)["--model"] == f"{shards[0]} ({total} bytes)"
    assert total > one
    rows, out = tmp_path / "rows.txt", tmp_path / "out.jsonl"
    rows.write_text("abc\n")
    args = ("batch", "-m", shards[0], "-t", 1, "-n", 3, "--temp", 0, "-q", "-f", rows, "-o", out, "--resume")
    assert cli(*args).returncode == 0
    shards[2].write_bytes(shards[2].read_bytes() + bytes(32))
    done = cli(*args)
    assert done.returncode == 2
    assert f"({total} bytes), now {shards[0]} ({total + 32} bytes)" in done.stderr.decode()


def test_an_answer_never_goes_over_a_shard(shards: list[Path]) -> None:
    before = shards[1].read_bytes()
    line = refused(generate(shards[0], "-p", "abc", "-o", shards[1]), 2)
    assert f"-o/--output: {shards[1]} is the file of -m" in line
    assert shards[1].read_bytes() == before
