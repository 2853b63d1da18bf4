"""Flags of model loading and of the context reach llama.cpp's structs, and what they change."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from cases import answer_of, generate, refused
from conftest import ask

from spec_cli.config import resolve
from spec_cli.engine import Engine
from spec_cli.llama.context import ContextParams
from spec_cli.llama.loading import LoadParams, _buffers, known_devices
from spec_cli.llama.log import C
from spec_cli.plan import plan
from spec_cli.settings import flags

Make = Callable[..., Engine]
CONTEXT = {
    "-b": ("300", "n_batch", 300), "-ub": ("100", "n_ubatch", 100), "-t": ("3", "n_threads", 3),
    "-tb": ("2", "n_threads_batch", 2),
    "-fa": ("off", "flash_attn_type", 0), "--swa-full": ("", "swa_full", True), "-c": ("768", "n_ctx", 768),
    "-ctk": ("q8_0", "type_k", C.GGML_TYPE_Q8_0), "-ctv": ("f32", "type_v", C.GGML_TYPE_F32),
    "--no-kv-offload": ("", "offload_kqv", False), "-kvo": ("", "offload_kqv", True),
    "--no-op-offload": ("", "op_offload", False), "--op-offload": ("", "op_offload", True),
    "--rope-scaling": ("yarn", "rope_scaling_type", C.LLAMA_ROPE_SCALING_TYPE_YARN),
    "--rope-scale": ("4", "rope_freq_scale", 0.25), "--rope-freq-base": ("5000", "rope_freq_base", 5000.0),
    "--rope-freq-scale": ("0.5", "rope_freq_scale", 0.5), "--yarn-orig-ctx": ("128", "yarn_orig_ctx", 128),
    "--yarn-ext-factor": ("0.5", "yarn_ext_factor", 0.5), "--yarn-attn-factor": ("2", "yarn_attn_factor", 2.0),
    "--yarn-beta-slow": ("3", "yarn_beta_slow", 3.0), "--yarn-beta-fast": ("31", "yarn_beta_fast", 31.0),
}  # fmt: skip
DRAFT_CONTEXT = {
    "-cd": ("512", "n_ctx", 512), "-td": ("3", "n_threads", 3), "-tbd": ("2", "n_threads_batch", 2),
    "-ctkd": ("q8_0", "type_k", C.GGML_TYPE_Q8_0), "-ctvd": ("f32", "type_v", C.GGML_TYPE_F32),
}  # fmt: skip
MODEL = {
    "-ngl": ("7", "n_gpu_layers", 7), "-lm": ("mlock", "load_mode", C.LLAMA_LOAD_MODE_MLOCK),
    "-sm": ("row", "split_mode", C.LLAMA_SPLIT_MODE_ROW), "-mg": ("1", "main_gpu", 1),
    "--check-tensors": ("", "check_tensors", True), "--no-host": ("", "no_host", True),
}  # fmt: skip


def settings(model: Path, *words: str) -> Any:
    """As the command line gives them: flag names to fields, values as text."""
    given: dict[str, Any] = {"model": str(model)}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, flag = next((n, f) for n, f in flags().items() if word in (*f.names, *f.off))
        value: Any = word not in flag.off
        if rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        given[name] = [value] if name in ("override_tensor", "override_kv", "lora") else value
    return resolve(given, {"SPEC_CLI_CONFIG": ""})


@pytest.mark.parametrize("flag", CONTEXT)
def test_context_flags_reach_the_struct(models: Path, flag: str) -> None:
    text, field, right = CONTEXT[flag]
    s = settings(models / "plain.gguf", flag, *([text] if text else []))
    assert getattr(plan(s, lambda line: None).target.c(), field) == right


@pytest.mark.parametrize("flag", DRAFT_CONTEXT)
def test_draft_context_flags_reach_its_struct(models: Path, flag: str) -> None:
    text, field, right = DRAFT_CONTEXT[flag]
    s = settings(models / "plain.gguf", "-md", str(models / "plain.gguf"), flag, text)
    assert getattr(plan(s, lambda line: None).draft.c(), field) == right


def test_what_nobody_asked_is_llama_cpps_default() -> None:
    ours, theirs = ContextParams(512).c(), C.llama_context_default_params()
    for name in [
        n for n, _ in theirs._fields_ if n.startswith(("rope_", "yarn_")) or n in ("offload_kqv", "op_offload")
    ]:
        assert getattr(ours, name) == getattr(theirs, name), name
    params, default = LoadParams().c()[0], C.llama_model_default_params()
    for name in ("n_gpu_layers", "split_mode", "load_mode", "main_gpu", "check_tensors", "no_host", "use_extra_bufts"):
        assert getattr(params, name) == getattr(default, name), name


@pytest.mark.parametrize("flag", MODEL)
def test_model_flags_reach_the_struct(models: Path, flag: str) -> None:
    text, field, right = MODEL[flag]
    s = settings(models / "plain.gguf", flag, *([text] if text else []))
    assert getattr(LoadParams.of(s).c()[0], field) == right


def test_lists_reach_the_struct(models: Path) -> None:
    cpu = next(iter(known_devices()))
    model = models / "plain.gguf"
    params, kept = LoadParams.of(settings(model, "-ts", "3,1")).c()
    assert [kept[0][i] for i in range(3)] == [3, 1, 0]
    params, kept = LoadParams.of(settings(model, "-dev", cpu)).c()
    assert list(kept[0]) == [known_devices()[cpu], None]
    assert list(LoadParams.of(settings(model, "-dev", "none")).c()[1][0]) == [None]
    assert LoadParams.of(settings(model, "-dev", cpu), draft=True).device == (cpu,)
    assert LoadParams.of(settings(model, "-dev", cpu, "-devd", "none"), draft=True).device == ("none",)
    for words, patterns in (
        (("-ot", "a.*=CPU,b=CPU"), [b"a.*", b"b"]),
        (
            ("-ncmoe", "2"),
            [rb"blk\.0\.ffn_(up|down|gate|gate_up)_(ch|)exps", rb"blk\.1\.ffn_(up|down|gate|gate_up)_(ch|)exps"],
        ),
        (("-cmoe",), [rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"]),
    ):
        params, kept = LoadParams.of(settings(model, *words)).c()
        assert [o.pattern for o in kept[0]] == [*patterns, None]
        assert kept[0][0].buft == _buffers()["CPU"]
        assert ctypes.cast(params.tensor_buft_overrides, ctypes.c_void_p).value == ctypes.addressof(kept[0])
    assert LoadParams.of(settings(model, "-otd", "x=CPU")).override_tensor == ()
    assert LoadParams.of(settings(model, "-otd", "x=CPU"), draft=True).override_tensor == ("x=CPU",)


def test_the_drafts_flags_reach_its_struct_and_not_the_targets(models: Path) -> None:
    s = settings(models / "plain.gguf", "-ngld", "5", "-cmoed", "-ncmoed", "1")
    assert LoadParams.of(s, draft=True).c()[0].n_gpu_layers == 5
    assert [o.pattern for o in LoadParams.of(s, draft=True).c()[1][0]][1:] == [
        rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps",
        None,
    ]
    assert LoadParams.of(s).c()[0].n_gpu_layers == -1
    assert LoadParams.of(s).override_tensor == ()


def test_metadata_can_be_overridden(models: Path) -> None:
    """With a BOS, the prompt is a token longer; the longest context is another."""
    model = models / "clock.gguf"
    for value, n in (("false", 3), ("true", 4)):
        got = answer_of(
            generate(
                model, "-p", "abc", "-n", 1, "--json", "--override-kv", f"tokenizer.ggml.add_bos_token=bool:{value}"
            )
        )
        assert got["prompt_tokens"] == n
    s = settings(model, "--override-kv", "llama.context_length=int:300")
    assert plan(s, lambda line: None).target.n_ctx == 300


def test_a_lora_changes_the_text_by_its_scale(models: Path, tmp_path: Path, engine: Make) -> None:
    adapter = tiny.lora(tmp_path / "lora.gguf")
    texts = [
        ask(engine(models / "plain.gguf", **how), "hello", predict=24).text
        for how in (
            {},
            {"lora_scaled": (f"{adapter}:0",)},
            {"lora": (str(adapter),)},
            {"lora_scaled": (f"{adapter}:1",)},
        )
    ]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    with_drafts = engine(models / "plain.gguf", lora=(str(adapter),), model_draft=models / "plain.gguf")
    assert ask(with_drafts, "hello", predict=24).text == texts[2]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("-dev", "CUDA9"), 2, "-dev/--device: 'CUDA9' is not known to this build"),
        (("-ot", "a=CUDA9"), 2, "-ot/--override-tensor: 'CUDA9'"),
        (("-ot", "(=CPU"), 2, "-ot/--override-tensor: '('"),
        (("-ot", "CPU"), 2, "is not PATTERN=BUFFER"),
        (("--override-kv", "a=b:c"), 2, "'a=b:c' is not KEY=TYPE:VALUE"),
        (("--lora", "/no/such"), 3, "--lora: /no/such: No such file"),
        (("--lora-scaled", "x"), 2, "'x' is not FILE:SCALE"),
        (("-ts", "a"), 2, "-ts/--tensor-split: 'a'"),
        (("-lm", "fast"), 2, "is not one of auto, none, mmap"),
    ],
)
def test_what_cannot_be_loaded_so_is_refused(models: Path, args: tuple[str, str], code: int, words: str) -> None:
    assert words in refused(generate(models / "clock.gguf", "-p", "abc", *args), code)


def test_a_lora_for_another_model_is_refused(models: Path, tmp_path: Path) -> None:
    adapter = tiny.lora(tmp_path / "lora.gguf", width=32)
    done = generate(models / "plain.gguf", "-p", "abc", "--lora", adapter)
    assert (done.returncode, done.stdout) == (3, b"")
    assert f"--lora: {adapter} does not fit".encode() in done.stderr
