"""What a newcomer is told once, before the time is lost: no GPU, no chat template, a draft that cannot help."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from cases import generate, refused, said
from conftest import cli
from pairs import Pair

from spec_cli.errors import FileError
from spec_cli.llama.context import gpu_offload
from spec_cli.plan import plan
from spec_cli.settings import Settings

NO_GPU = "this build of llama.cpp has no GPU backend: everything runs on the CPU"
NO_TEMPLATE = (
    "has no chat template: the prompt is continued as plain text (--chat-template gives one, --raw says it is meant)"
)
cpu_only = pytest.mark.skipif(gpu_offload(), reason="this build of llama.cpp has a GPU backend")


@cpu_only
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-ngl", 99), "-ngl/--gpu-layers 99"),
        (("-ngl", "all"), "-ngl/--gpu-layers all"),
        (("-ts", "3,1", "-mg", 1), "-ts/--tensor-split 3,1, -mg/--main-gpu 1"),
        (("-ngl", 0), None),
        (("-ngl", "auto"), None),
        (("-ngl", 99, "-q"), None),
        ((), None),
    ],
)
def test_gpu_flags_without_a_gpu_are_said_once(models: Path, flags: tuple[object, ...], words: str | None) -> None:
    done = generate(models / "clock.gguf", "--raw", "-p", "abc", "-n", 3, *flags)
    assert done.stdout == b"def\n"
    lines = [line for line in said(done) if NO_GPU in line]
    assert len(lines) == (words is not None)
    if words:
        assert lines[0].startswith(f"{words}: {NO_GPU} (CMAKE_ARGS=")


@cpu_only
def test_gpu_wishes_of_the_environment_and_of_a_file_are_answered_in_batch_and_chat_too(
    models: Path, tmp_path: Path
) -> None:
    clock, config = tiny.clock(tmp_path / "t.gguf", template="{{ messages[-1].content }}"), tmp_path / "models.toml"
    config.write_text("[defaults]\ngpu-layers = 20\n")
    done = cli("batch", "-m", clock, "-t", 1, "-n", 3, stdin=b"abc\nabd\n", env={"LLAMA_ARG_N_GPU_LAYERS": "20"})
    assert done.stderr.decode().count(NO_GPU) == 1
    assert "LLAMA_ARG_N_GPU_LAYERS 20: this build" in done.stderr.decode()
    done = cli("chat", "-m", clock, "-t", 1, "-n", 3, "--config", config, stdin=b"abc\nabd\n")
    assert done.stderr.decode().count(f"20: {NO_GPU}") == 1


@cpu_only
def test_verbose_names_the_devices(models: Path) -> None:
    assert "devices: CPU" in said(generate(models / "clock.gguf", "--raw", "-v", "-p", "abc", "-n", 3))


def test_a_model_without_a_chat_template_says_so_once(models: Path, tmp_path: Path) -> None:
    clock = models / "clock.gguf"
    assert f"{clock} {NO_TEMPLATE}" in said(generate(clock, "-p", "abc", "-n", 3))
    done = cli("batch", "-m", clock, "-t", 1, "-n", 3, stdin=b"abc\nabd\n")
    assert done.stderr.decode().count(f"{clock} {NO_TEMPLATE}") == 1
    chatty = tiny.clock(tmp_path / "t.gguf", template="{{ messages[-1].content }}")
    for args in ((clock, "--raw"), (clock, "-q"), (chatty,)):
        assert NO_TEMPLATE not in generate(*args, "-p", "abc", "-n", 3).stderr.decode()


def test_a_draft_as_large_as_its_target_is_said(models: Path, tmp_path: Path) -> None:
    said: list[str] = []
    small, large = models / "plain.gguf", tiny.plain(tmp_path / "large.gguf", layers=20)
    for target, draft, words in (
        (small, small, "is as large as the target (0 MiB against 0 MiB)"),
        (small, large, "is larger than the target (3 MiB against 0 MiB)"),
        (large, small, None),
    ):
        said.clear()
        plan(Settings(model=target, model_draft=draft, threads=1, ctx_size=256), said.append)
        line = f"-md {draft} {words}: as a draft model it cannot make it faster"
        assert said == ([line] if words else [])


def test_mtp_layers_for_a_target_that_gives_them_nothing_are_refused_with_what_to_do(pairs: dict[str, Pair]) -> None:
    whole, head, llama = pairs["mimo"].target, pairs["mimo-file"].head, pairs["eagle3"].target
    asked = Settings(model=llama, model_draft=whole, threads=1, spec_type=("draft-mtp",))
    with pytest.raises(FileError) as error:
        plan(asked, lambda line: None)
    assert f"llama.cpp gives none of llama models ({llama}): -m {whole} alone runs with its own" in str(error.value)
    assert "--spec-type draft-simple takes it for a draft model" in str(error.value)
    with pytest.raises(FileError, match="leave -md out"):
        plan(Settings(model=llama, model_draft=head, threads=1), lambda line: None)
    done = generate(llama, "-md", whole, "--spec-type", "draft-mtp", "-p", "abc")
    assert "MTP layers, such as those of" in refused(done, 3)
