"""Files over which llama.cpp ends the process, or answers as if all were well: each is an error of one line."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
import tiny
import tiny_encoders
from cases import generate, refused
from conftest import ask, cli
from gguf_mutants import STRING, File, Key
from pairs import Pair

from spec_cli import plan as plan_module
from spec_cli.apart import Ended, apart, at
from spec_cli.chat.prompt import plain_tokens
from spec_cli.engine import Engine
from spec_cli.errors import FileError, Interrupted, UsageError
from spec_cli.plan import plan
from spec_cli.settings import Settings

pytestmark = [pytest.mark.forks, pytest.mark.long]

U32, F32, BOOL = 4, 6, 7


def changed(source: Path, target: Path, *changes: Callable[[File], None]) -> Path:
    """A copy with another header."""
    file = File.read(source.read_bytes())
    for change in changes:
        change(file)
    target.write_bytes(file.bytes()[0])
    return target


def key(name: str, kind: int, value: Any) -> Callable[[File], None]:
    """Set a key; None takes it away."""

    def change(file: File) -> None:
        file.keys = [k for k in file.keys if k.name != name.encode()]
        if value is not None:
            file.keys.append(Key(name.encode(), kind, value))

    return change


def last_token(text: bytes) -> Callable[[File], None]:
    """Another text of the last token."""

    def change(file: File) -> None:
        next(k for k in file.keys if k.name == b"tokenizer.ggml.tokens").value[-1] = text

    return change


def five_of(name: bytes) -> Callable[[File], None]:
    """Only the first five of a list."""

    def change(file: File) -> None:
        del next(k for k in file.keys if k.name == name).value[5:]

    return change


DOUBLE = "its tokens 259 and 284 are both 'a'"
FAULTS: list[tuple[str, Sequence[Callable[[File], None]]]] = [
    (DOUBLE, [last_token(b"a")]),  # ggml-org/llama.cpp#25739, #24885: also files of large publishers
    (DOUBLE, [last_token(b"a\0")]),
    ("has no vocabulary", [key("tokenizer.ggml.model", STRING, b"none")]),
    ("has no vocabulary", [key("tokenizer.ggml.model", STRING, b"no_vocab")]),  # PrismML-Eng/llama.cpp#70
    ("llama.cpp ends the process over it: llama-vocab.cpp", [key("tokenizer.ggml.model", STRING, b"bert")]),
    ("unknown tokenizer: 'what'", [key("tokenizer.ggml.model", STRING, b"what")]),
    (
        "adds BOS to each text, and has no such token (tokenizer.ggml.bos_token_id)",
        [
            key("tokenizer.ggml.model", STRING, b"t5"),
            key("tokenizer.ggml.add_bos_token", BOOL, 1),
            key("tokenizer.ggml.bos_token_id", U32, None),
        ],
    ),
    ("expert_count is 8, and expert_used_count missing", [key("llama.expert_count", U32, 8)]),
    ("expert_count is 0, and expert_used_count 2", [key("llama.expert_used_count", U32, 2)]),
    (
        "expert_count is 2, and expert_used_count 8",
        [key("llama.expert_count", U32, 2), key("llama.expert_used_count", U32, 8)],
    ),
    ("llama.rope.scaling.type is what", [key("llama.rope.scaling.type", STRING, b"what")]),
    ("Index out of array bounds for scores (5 < 285)", [five_of(b"tokenizer.ggml.scores")]),
    ("Index out of array bounds for toktypes (5 < 285)", [five_of(b"tokenizer.ggml.token_type")]),
    ("cannot find tokenizer merges", [key("tokenizer.ggml.model", STRING, b"gpt2")]),
    ("has wrong type f32 but expected type u32", [key("llama.embedding_length", F32, 1.0)]),
    ("has wrong shape", [key("llama.embedding_length", U32, 0)]),
    ("has wrong shape", [key("llama.attention.head_count", U32, 0)]),
    ("has wrong shape", [key("llama.attention.head_count", U32, 3)]),
    ("llama.rope.dimension_count is 7", [key("llama.rope.dimension_count", U32, 7)]),
    ("llama.rope.dimension_count is 128 of 64", [key("llama.rope.dimension_count", U32, 128)]),
    ("general.alignment is no multiple of 32", [key("general.alignment", U32, 8)]),
    ("unknown model architecture: 'what'", [key("general.architecture", STRING, b"what")]),
]  # fmt: skip


@pytest.mark.parametrize("role", ["model", "model_draft"])
def test_a_faulty_header_is_an_error_that_names_file_and_fault(models: Path, tmp_path: Path, role: str) -> None:
    """ggml-org/llama.cpp#25739, PrismML-Eng/llama.cpp#70 and others ended by SIGABRT. All but BOS count in a draft."""
    for i, (words, changes) in enumerate(FAULTS):
        bad = changed(models / "clock.gguf", tmp_path / f"{i}.gguf", *changes)
        settings = Settings(**{"model": models / "clock.gguf", "ctx_size": 256, "threads": 1, role: bad})
        with pytest.raises(FileError) as error:
            plan(settings, lambda line: None)
        assert words in str(error.value), (i, str(error.value))
        assert str(bad) in str(error.value)
        assert "\n" not in str(error.value)


def test_where_no_fork_can_be_the_known_faults_are_looked_for_beforehand(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "can_fork", lambda: False)
    good = Settings(model=models / "clock.gguf", ctx_size=256, threads=1)
    assert plan(good, lambda line: None).target.n_ctx == 256
    for words, changes in FAULTS:
        if "its tokens" in words or "expert_" in words or "scaling" in words:
            bad = changed(models / "clock.gguf", tmp_path / "bad.gguf", *changes)
            with pytest.raises(FileError, match=r"over which llama\.cpp ends the process") as error:
                plan(Settings(model=models / "clock.gguf", model_draft=bad), lambda line: None)
            assert words in str(error.value)


def test_batch_and_the_exit_code_say_so_too(models: Path, tmp_path: Path) -> None:
    bad = changed(models / "clock.gguf", tmp_path / "bad.gguf", last_token(b"a"))
    assert DOUBLE in refused(generate(bad, "-p", "abc"), 3)
    assert DOUBLE in refused(cli("batch", "-m", bad, stdin=b"abc\n"), 3)


@pytest.mark.parametrize(
    ("tensor", "kind"), [("output_norm.weight", "F16"), ("output.weight", "I8"), ("output.weight", "F64")]
)
def test_a_tensor_of_a_type_without_a_kernel_is_named(models: Path, tmp_path: Path, tensor: str, kind: str) -> None:
    """Such files load, and end the process at their first token."""
    reader, bad = gguf.GGUFReader(models / "plain.gguf"), tmp_path / "bad.gguf"
    w = gguf.GGUFWriter(bad, "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            more = field.types[-1] if len(field.types) > 1 else None
            w.add_key_value(field.name, field.contents(), field.types[0], more)
    numbers = {"F16": np.float16, "I8": np.int8, "F64": np.float64}
    for t in reader.tensors:
        w.add_tensor(t.name, t.data.astype(numbers[kind]) if t.name == tensor else t.data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    words = f"its {tensor} is not of type F32" if kind == "F16" else f"its {tensor} is of type {kind}"
    with pytest.raises(FileError, match=words):
        plan(Settings(model=bad, threads=1), lambda line: None)


def test_sections_of_a_rotation_fit_into_a_head(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """Else the first token ends the process."""

    def change(file: File) -> None:
        next(k for k in file.keys if k.name == b"qwen35.rope.dimension_sections").value[3] = 1 << 20

    bad = changed(pairs["qwen35"].target, tmp_path / "bad.gguf", change)
    with pytest.raises(FileError, match=r"rope\.dimension_sections are \[6, 5, 5, 1048576\] of 32"):
        plan(Settings(model=bad, threads=1), lambda line: None)


@pytest.fixture(scope="module")
def wordless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clock without tokens for bytes, as if they were words."""
    texts = [b"q%02X" % i if text.startswith(b"<0x") else text for i, text in enumerate(tiny.TEXTS)]
    kinds = [gguf.TokenType.NORMAL if kind == gguf.TokenType.BYTE else kind for kind in tiny.KINDS]
    return tiny.clock(tmp_path_factory.mktemp("wordless") / "wordless.gguf", texts=texts, kinds=kinds)


def test_a_character_that_the_vocabulary_cannot_spell_is_named(wordless: Path) -> None:
    """ggml-org/llama.cpp#2580: there the process ends."""
    with Engine(Settings(model=wordless, threads=1, ctx_size=256, temp=0.0, raw=True)) as engine:
        assert ask(engine, "abc", predict=3).text == "def"
        for text, char in (("aé", "'é'"), ("a b", "' '"), ("a\nb", r"'\\n'"), ("日", "'日'")):
            with pytest.raises(UsageError, match=f"has no token for {char}, nor for its bytes"):
                plain_tokens(engine.vocab, text)
        dry = {"dry_multiplier": 1.0, "dry_sequence_breaker": ("é",)}
        with pytest.raises(UsageError, match=r"--dry-sequence-breaker: .* 'é'"):
            ask(engine, "abc", predict=3, **dry)
    assert "has no token for 'é'" in refused(generate(wordless, "--raw", "-q", "-p", "aé"), 2)
    done = cli("batch", "-m", wordless, "-t", 1, "-n", 3, "--raw", "-q", stdin="abc\naé\nxyz\n".encode())
    lines = done.stdout.decode().splitlines()
    assert [("no token for" in line, '"text"' in line) for line in lines] == [
        (False, True),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("n", [3, 60, 5000, 20000, -4])
def test_a_file_that_is_cut_short_says_so(models: Path, tmp_path: Path, n: int) -> None:
    """A download that broke off, at any place, as -m and as -md."""
    whole = (models / "clock.gguf").read_bytes()
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(whole[:n])
    size = len(whole[:n])
    words = f"is cut short: its tensors need {len(whole)} bytes, it has {size}; download it again"
    words = {3: "is not a GGUF file", 60: "has a header that cannot be read", 5000: "has a header that"}.get(n, words)
    assert words in refused(generate(torn, "-p", "abc"), 3)
    with pytest.raises(FileError, match=r"draft model .*torn\.gguf ") as error:
        plan(Settings(model=models / "clock.gguf", model_draft=torn), lambda line: None)
    assert words in str(error.value)


def test_what_embeds_or_translates_is_no_language_model(models: Path, tmp_path: Path) -> None:
    """ggml-org/llama.cpp#13688, #13689: an empty answer, and exit code 0."""
    bert = tiny_encoders.bert(tmp_path / "bert.gguf")
    encoder = tiny_encoders.t5(tmp_path / "encoder.gguf", decoder=False)
    both = tiny_encoders.t5(tmp_path / "t5.gguf", decoder=True)
    words = "is no language model but an"
    assert f"{bert} {words} embedding model (bert)" in refused(generate(bert, "-p", "abc"), 3)
    clock = models / "clock.gguf"
    cases: list[tuple[Path, str, tuple[str, ...]]] = [
        (bert, "embedding model (bert)", ()), (encoder, "encoder (t5encoder)", ()), (both, "encoder (t5)", ()),
        (clock, "embedding model (llama)", ("llama.attention.causal=bool:false",)),
        (clock, "embedding model (llama)", ("llama.pooling_type=int:3",)),
    ]  # fmt: skip
    for path, what, overrides in cases:
        for files in ({"model": path}, {"model": models / "plain.gguf", "model_draft": path}):
            with pytest.raises(FileError) as error:
                plan(Settings(**files, override_kv=overrides, threads=1, ctx_size=256), lambda line: None)
            assert f"{words} {what}" in str(error.value)


def test_work_apart_gives_its_result_its_words_and_its_errors() -> None:
    said: list[str] = []
    assert apart(lambda say: (say("a"), say("b"), 7)[2], said.append) == 7
    assert said == ["a", "b"]

    def fails(say: Callable[[str], None]) -> None:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        apart(fails, said.append)
    with pytest.raises(ZeroDivisionError):
        apart(lambda say: 1 / 0, said.append)


def test_an_end_apart_is_an_error_with_the_last_words() -> None:
    def ends(say: Callable[[str], None]) -> None:
        at("target model x.gguf")
        os.write(2, b"/a/b/llama-vocab.cpp:12: GGML_ASSERT(x > 0) failed\n")
        os.abort()

    with pytest.raises(Ended) as error:
        apart(ends, print)
    words = "llama.cpp ends the process over it: llama-vocab.cpp:12: GGML_ASSERT(x > 0) failed"
    assert (str(error.value), error.value.exit_code) == (f"target model x.gguf: {words}", 3)

    def throws(say: Callable[[str], None]) -> None:
        os.write(2, b"terminate called after throwing an instance of 'std::out_of_range'\n  what():  _Map_base::at\n")
        os.kill(os.getpid(), signal.SIGABRT)

    with pytest.raises(FileError, match="over it: _Map_base::at"):
        apart(throws, print)
    with pytest.raises(FileError, match="over it: Segmentation fault"):
        apart(lambda say: os.kill(os.getpid(), signal.SIGSEGV), print)


def test_work_apart_is_given_up_at_once_and_leaves_nobody_behind() -> None:
    """A header over which C never ends can be interrupted."""
    start, before = time.monotonic(), psutil.Process().children()
    with pytest.raises(Interrupted):
        apart(lambda say: time.sleep(60), print, lambda: True)
    assert time.monotonic() - start < 10
    assert psutil.Process().children() == before
