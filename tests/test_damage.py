"""What would end in an assertion, a bad pointer, a hang or a lost file, and does not."""

from __future__ import annotations

import math
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from conftest import cli

from spec_cli.llama.context import cache_type
from spec_cli.settings import CACHE_TYPES


def refused(*args: object, code: int, words: str, **how: bytes) -> None:
    done = cli("generate", "-t", 1, *args, **how)  # type: ignore[arg-type]
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("error:")]
    assert (done.returncode, len(lines), done.stdout) == (code, 1, b""), done.stderr
    assert words in lines[0]


def patched(source: Path, target: Path, key: str, value: bytes) -> Path:
    """A copy with another four-byte value behind a metadata key."""
    data = bytearray(source.read_bytes())
    at = data.index(key.encode()) + len(key) + 4
    data[at : at + 4] = value
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.block_count", struct.pack("<I", 0), "says it has 0 layers"),
        ("llama.block_count", struct.pack("<I", 100000), "says it has 100000 layers"),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<f", math.nan), "epsilon is nan"),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<f", -1), "epsilon is -1"),
        ("llama.context_length", struct.pack("<I", 1 << 31), "-c sets one"),
        ("llama.context_length", struct.pack("<I", 0), "-c sets one"),
    ],
)
def test_damaged_headers_are_refused_as_target_and_as_draft(
    models: Path, tmp_path: Path, key: str, value: bytes, words: str
) -> None:
    bad = patched(models / "clock.gguf", tmp_path / "bad.gguf", key, value)
    refused("-m", bad, "-p", "abc", "-n", 3, code=3, words=words)
    if "context" not in key:
        refused("-m", models / "clock.gguf", "-md", bad, "-p", "abc", code=3, words=words)
    else:
        assert cli("generate", "-t", 1, "-m", bad, "-c", 256, "-p", "abc", "-n", 3, "-q").stdout == b"def\n"


def test_a_file_with_prediction_layers_only_is_no_model(tmp_path: Path, models: Path) -> None:
    head = tiny.clock(tmp_path / "head.gguf", counts={"llama.nextn_predict_layers": 1})
    head.write_bytes(head.read_bytes().replace(b"blk.0.", b"blk.1."))
    words = "multi-token-prediction layers only"
    refused("-m", head, "-p", "abc", code=3, words=words)
    refused("-m", models / "clock.gguf", "-md", head, "--spec-type", "draft-simple", "-p", "abc", code=3, words=words)


def test_every_cache_type_has_an_id_and_works(models: Path) -> None:
    assert len({cache_type(name) for name in CACHE_TYPES}) == len(CACHE_TYPES)
    done = cli(
        "generate", "-t", 1, "-m", models / "clock.gguf", "-p", "abc", "-n", 3, "-q", "-ctk", "bf16", "-ctv", "bf16"
    )
    assert (done.returncode, done.stdout) == (0, b"def\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["a reader that does not read", "a FIFO without a reader", "a template without end"])
def test_one_signal_ends_what_python_waits_for(models: Path, tmp_path: Path, number: int, where: str) -> None:
    args = ["-m", str(models / "const_j.gguf"), "-p", "abc", "-c", "16384", "-n", "16000", "--temp", "0"]
    reader, writer = os.pipe()
    if "FIFO" in where:
        os.mkfifo(tmp_path / "fifo")
        args += ["-o", str(tmp_path / "fifo")]
    elif "template" in where:
        loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        args[1] = str(tiny.clock(tmp_path / "loop.gguf", template=loop))
    else:
        args += ["--special", "-v"]  # the pipe holds 64 kB
        args[args.index("-n") + 1] = "-1"
        import fcntl

        if sys.platform == "linux":
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "spec_cli", "generate", "-t", "1", *args]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.DEVNULL)
    time.sleep(4)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=5) == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    os.close(reader)
    os.close(writer)


def test_the_answer_never_goes_over_what_was_read(models: Path, tmp_path: Path) -> None:
    prompt, config = tmp_path / "prompt.txt", tmp_path / "models.toml"
    prompt.write_text("abc")
    config.write_text(f'[models.a]\nmodel = "{models / "clock.gguf"}"\n')
    with prompt.open("rb") as stdin:
        command = [sys.executable, "-m", "spec_cli", "generate", "-m", models / "clock.gguf", "-o", prompt]
        done = subprocess.run(list(map(str, command)), stdin=stdin, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"is the file of standard input" in done.stderr
    assert prompt.read_text() == "abc"
    refused("-m", "a", "--config", config, "-o", config, "-p", "abc", code=2, words="is the file of --config")
    assert config.read_text().startswith("[models.a]")


def test_a_prompt_far_beyond_the_context_is_refused_before_it_is_tokenised(smol: Path, tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_text("word " * 8_000_000)
    start = time.monotonic()
    refused("-m", smol, "-f", big, "-c", 2048, code=4, words="40000000 bytes")
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["-m", "x" * 300, "-p", "a"], 3, "x" * 300),
        (["-m", "", "-p", "a"], 2, "-m/--model: '' is not a path"),
        (["-f", ""], 2, "-f/--file: ''"),
        (["-p", "a", "-o", "two  blanks/x"], 3, "two  blanks"),
        (["-p", "a", "--spec-type", ""], 2, "unknown speculative type: ''"),
        (["-p", "a", "-n", "9" * 5000], 2, "9..."),
    ],
)
def test_errors_name_what_was_given(args: list[str], code: int, words: str, smol: Path) -> None:
    refused(*args, code=code, words=words)


def test_quiet_on_the_command_line_beats_verbose_in_the_file(models: Path, tmp_path: Path) -> None:
    config = tmp_path / "models.toml"
    config.write_text("[defaults]\nverbose = true\n")
    args = ("generate", "-t", 1, "-m", models / "clock.gguf", "-p", "abc", "-n", 3, "--config", config)
    assert cli(*args, "-q").stderr == b""
    assert b"statistics" in cli(*args).stderr
