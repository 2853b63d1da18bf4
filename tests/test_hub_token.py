"""A token is sent as it is meant, and never shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
from cases import environment, said
from conftest import cli
from local_hub import Hub

from spec_cli.cli.argv import without_token
from spec_cli.config import resolve
from spec_cli.errors import FileError, UsageError
from spec_cli.hub.token import masked, token_of
from spec_cli.settings import Settings

pytestmark = pytest.mark.long

TOKEN = "hf_SecretOfMine"


@pytest.mark.parametrize(
    ("given", "right"),
    [("", None), (" \t\r\n", None), (f"{TOKEN}\n", TOKEN), (f"\r\n {TOKEN} \t", TOKEN), (TOKEN, TOKEN), (None, None)],
)
def test_a_token_loses_the_blanks_around_it(given: str | None, right: str | None) -> None:
    """A line end behind it is that of a file or a Kubernetes secret: ai-dynamo/modelexpress#277."""
    assert token_of(Settings(hf_token=given)) == right


@pytest.mark.parametrize("inside", [" ", "\n", "\x00", "\x1b[31m", "é", '"', "\udcff", "\u200b"])
def test_what_cannot_be_a_token_is_refused_and_not_shown(inside: str) -> None:
    with pytest.raises(UsageError, match=r"^environment variable HF_TOKEN: no token has blanks") as caught:
        token_of(Settings(hf_token=f"{TOKEN}{inside}abcdef", origins={"hf_token": "environment variable HF_TOKEN"}))
    assert TOKEN not in str(caught.value)
    assert "abcdef" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "flag", "sent"),
    [
        ("", None, ""),
        (f"{TOKEN}\n", None, f"Bearer {TOKEN}"),
        ("hf_Other", f" {TOKEN}\r\n", f"Bearer {TOKEN}"),
        (None, "", ""),
    ],
)
def test_a_token_of_the_environment_or_a_flag_is_sent_trimmed(
    hub: Hub, fetch: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch,
    env: str | None, flag: str | None, sent: str,
) -> None:  # fmt: skip
    """An empty one is none, and a public file loads: h2oai/h2o-llmstudio#1110, microsoft/PyRIT#2274."""
    if env is not None:
        monkeypatch.setenv("HF_TOKEN", env)
    given = {"model": "x.gguf"} if flag is None else {"model": "x.gguf", "hf_token": flag}
    assert fetch("me/clock-GGUF", hf_token=resolve(given, os.environ).hf_token).model is not None
    assert hub.token == sent


def test_a_bad_token_is_of_no_concern_to_other_runs(world: dict[str, str]) -> None:
    done = cli("models", env={**world, "HF_TOKEN": "a b"})
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    "args",
    [
        ("generate", "-hf", "me/clock-GGUF", "-hft", TOKEN, "--debug", "-p", "a"),
        ("generate", "-hf", "me/clock-GGUF", f"--hf-token={TOKEN}", "-p", "a"),
        ("generate", "-hf", "me/clock-GGUF", "-hft", f"a {TOKEN}", "--debug", "-p", "a"),
        ("generate", f"-hft={TOKEN}"),
        ("generate", f"-hft{TOKEN}"),
        ("generate", f"--hf-token{TOKEN}"),
        ("-hft", TOKEN, "-m", "x.gguf"),
        (f"--hf_token={TOKEN}", "-m", "x.gguf"),
        ("generate", "-hft", TOKEN, "-m", f"{TOKEN}.gguf", "-p", "a"),
        ("generate", "-hft", TOKEN, TOKEN),
    ],
)
def test_no_message_shows_a_token(hub: Hub, world: dict[str, str], args: tuple[str, ...]) -> None:
    """Also not what the hub says of it, a mistake in the flags, or a traceback."""
    hub.refusals["."] = 401, {"X-Error-Message": f"{TOKEN} is no token"}, b""
    done = cli(*args, env=world)
    assert done.returncode in (2, 3)
    assert said(done)[-1].startswith("error: ")
    assert TOKEN.encode() not in done.stdout + done.stderr


def test_a_password_in_the_address_of_a_hub_is_not_shown(fetch: Callable[..., Settings]) -> None:
    with pytest.raises(FileError, match=r": http://127\.0\.0\.1:9 cannot be reached: ") as caught:
        fetch("me/clock-GGUF", at=f"http://me:{TOKEN}@127.0.0.1:9")
    assert TOKEN not in str(caught.value)


def test_the_token_of_a_login_counts_and_is_not_shown(
    hub: Hub, fetch: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`hf auth login` keeps it in a file, which huggingface_hub reads by itself."""
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    hub.refusals["."] = 401, {"X-Error-Message": f"{TOKEN} is no token"}, b""
    with pytest.raises(FileError, match=r"the token is not valid for it \(\*\*\* is no token\)$"):
        fetch("me/clock-GGUF")
    assert hub.token == f"Bearer {TOKEN}"


def test_how_a_batch_is_gone_on_with_leaves_the_token_out(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    args = ["batch", "-m", str(models / "clock.gguf"), "-o", str(out), "-n", "3", "-t", "1"]
    command = [sys.executable, "-m", "spec_cli", *args, "--hf_token", TOKEN]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"abc\n")
        process.stdin.flush()
        while not out.exists() or not out.stat().st_size:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read().decode()
    again = f"spec-cli {' '.join(args)} --resume\n"
    assert f"1 row is in {out}; go on with (-hft is left out: set HF_TOKEN): {again}" in errors
    assert TOKEN not in errors


def test_arguments_are_told_from_the_token() -> None:
    args = ["batch", "-hft", "a1", "-m", "x", "--hf_token=b2", "--hf-token", "c3", "-hftd4", "-hf", "u/r", "-hft"]
    assert without_token(args) == (["batch", "-m", "x", "-hf", "u/r"], ["a1", "b2", "c3", "d4"])


def test_a_secret_is_masked_whole_in_parts_and_in_a_url() -> None:
    assert masked("b'Bearer hf_abc\\nhf_abcdef'", ["hf_abc\nhf_abcdef"]) == "b'Bearer ***\\n***'"
    assert masked("an error", ["", "a"]) == "an error"
    assert masked("http://me:hf_abc@hub.example:80/x and a@b", []) == "http://hub.example:80/x and a@b"
