"""A prompt of several parts: -p, -f, and what is piped in. No text is dropped, none is invented."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cases import answer_of, generate, refused, said, shell, started
from conftest import cli

from spec_cli.cli import standard_input
from spec_cli.cli.prompt import user_text
from spec_cli.errors import UsageError
from spec_cli.settings import Settings


@contextmanager
def standard_input_of(fd: int) -> Iterator[None]:
    """This process's sys.stdin on another descriptor, closed in the end."""
    old, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(io.FileIO(fd)), "utf-8")
    try:
        yield
    finally:
        sys.stdin.close()
        sys.stdin = old


def prompt(fd: int, joins: bool = True, **settings: object) -> tuple[str, list[str]]:
    """The text, and what was said about it."""
    lines: list[str] = []
    with standard_input_of(fd):
        return user_text(replace(Settings(), **settings), lines.append, joins=joins), lines  # type: ignore[arg-type]


def pipe_of(data: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def test_an_instruction_and_piped_text_are_one_prompt(models: Path) -> None:
    """As with `cat notes | llm "Summarise"` and `ollama run`: none of the two is dropped."""
    got = answer_of(generate(models / "clock.gguf", "-p", "ab", "-n", 3, "--json", stdin=b"xyz\n"))
    assert (got["text"], got["prompt_tokens"]) == ("abc", len("ab\n\nxyz"))
    done = generate(models / "clock.gguf", "-p", "ab", "-n", 3, stdin=b"x" * 1233 + b"\n")
    assert said(done)[0] == "prompt: -p, then 1,234 bytes of standard input"
    assert generate(models / "clock.gguf", "-p", "ab", "-n", 3, "-q", stdin=b"xyz\n").stderr == b""


def test_parts_are_joined_by_blank_lines_in_their_order(tmp_path: Path) -> None:
    """-p, each -f as given, then the pipe; `-f -` says where it goes. Escapes are read in -p only."""
    (tmp_path / "a").write_text("A\\n\n")
    (tmp_path / "b").write_text("\ufeffB\n\n")
    files = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert prompt(pipe_of(b"C\n"), prompt="1\\n", file=files)[0] == "1\n\n\nA\\n\n\nB\n\n\nC"
    text, lines = prompt(pipe_of(b"C\n"), prompt="1", file=(files[1], "-", files[0]))
    assert text == "1\n\nB\n\n\nC\n\nA\\n"
    assert lines == [f"prompt: -p, then -f {files[1]}, then 2 bytes of standard input, then -f {files[0]}"]
    assert prompt(pipe_of(b"C\n"), file=files[:1]) == (
        "A\\n\n\nC", [f"prompt: -f {files[0]}, then 2 bytes of standard input"],
    )  # fmt: skip
    assert prompt(nothing(), file=files) == ("A\\n\n\nB\n", [])


@pytest.mark.parametrize("kind", ["pipe", "socket", "file"])
def test_what_is_redirected_to_a_run_is_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "text").write_bytes(b"C")
    if kind == "socket":
        ours, theirs = socket.socketpair()
        theirs.sendall(b"C")
        theirs.close()
        fd = ours.detach()
    else:
        fd = pipe_of(b"C") if kind == "pipe" else os.open(tmp_path / "text", os.O_RDONLY)
    assert prompt(fd, prompt="1")[0] == "1\n\nC"


def test_what_is_not_for_this_run_is_not_read(tmp_path: Path) -> None:
    """A terminal, a device, nothing at all, and a file that somebody else has begun to read."""
    master, slave = os.openpty()
    os.write(master, b"typed\n")
    assert prompt(slave, prompt="1") == ("1", [])
    os.close(master)
    for device in (os.devnull, "/dev/zero"):
        assert prompt(os.open(device, os.O_RDONLY), prompt="1") == ("1", [])
    assert prompt(pipe_of(b""), prompt="1") == ("1", [])
    assert prompt(pipe_of(b"\n"), prompt="1") == ("1", [])
    (tmp_path / "lines").write_text("one\ntwo\n")
    fd = os.open(tmp_path / "lines", os.O_RDONLY)
    os.lseek(fd, 4, os.SEEK_SET)
    assert prompt(fd, prompt="1") == ("1", [])


def test_a_loop_over_the_lines_of_a_file_keeps_its_lines(models: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("abc\nxyz\nklm\n")
    loop = f'while read -r line; do "$@" -p "$line"; done < {tmp_path / "lines"}'
    done = shell(loop, "-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-n", 3, "-q")
    assert (done.stdout, done.stderr) == (b"def\nabc\nnop\n", b"")


def test_a_file_named_twice_is_read_once() -> None:
    """/dev/stdin is standard input, and a pipe has one end."""
    if not os.path.exists("/dev/stdin"):
        pytest.skip("this system has no such name")
    done = shell('printf xyz | "$@" -f /dev/stdin -p ab', "-m", "no.gguf")
    assert said(done)[0] == "prompt: -p, then 3 bytes of standard input"
    with pytest.raises(UsageError, match="can be read once"):
        prompt(pipe_of(b"C"), file=("-", "-"))


def test_a_second_prompt_is_refused() -> None:
    """The last one won, and the first one was gone without a word."""
    assert "-p/--prompt: given twice" in refused(cli("generate", "-p", "one", "-p", "two"), 2)
    assert "one file at a time" in refused(cli("batch", "-f", "a", "-f", "b"), 2)


@pytest.mark.parametrize(
    ("settings", "piped", "named"),
    [
        ({"prompt": ""}, b"", "-p/--prompt is empty"),
        ({"prompt": "  "}, b"", "-p/--prompt is blank (--raw continues it as it is)"),
        ({"prompt": "\\n"}, b"", "-p/--prompt is blank"),
        ({"file": ("FILE",)}, b"", "-f/--file: FILE is empty"),
        ({"prompt": "", "file": ("FILE",)}, b"", "-p/--prompt and -f/--file: FILE are empty"),
        ({}, b"", "standard input is empty"),
        ({}, b"\n", "standard input is empty"),
        ({}, b" \n\t\n", "standard input is blank"),
        ({"file": ("-",)}, b"\r\n", "standard input is empty"),
        ({"prompt": "", "raw": True}, b"", "-p/--prompt is empty"),
    ],
)
def test_an_empty_prompt_is_refused_by_its_name(
    tmp_path: Path, settings: dict[str, object], piped: bytes, named: str
) -> None:
    """An unset variable of a shell is no reason to invent something."""
    (tmp_path / "empty").write_text("\n")
    empty = str(tmp_path / "empty")
    if files := settings.get("file"):
        settings = {**settings, "file": tuple(empty if f == "FILE" else f for f in files)}  # type: ignore[attr-defined]
    with pytest.raises(UsageError) as error:
        prompt(pipe_of(piped), **settings)
    assert str(error.value).startswith(f"no prompt: {named.replace('FILE', empty)}")


def test_an_empty_part_beside_a_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    empty = str(tmp_path / "empty")
    assert prompt(nothing(), prompt="1", file=(empty,)) == (
        "1", [f"-f/--file: {empty} is empty: it adds nothing to the prompt"],
    )  # fmt: skip
    assert prompt(pipe_of(b"C"), prompt="") == ("C", ["-p/--prompt is empty: it adds nothing to the prompt"])


def test_blank_text_can_be_continued_as_it_is() -> None:
    assert prompt(nothing(), prompt=" ", raw=True) == (" ", [])


def test_an_empty_prompt_is_a_usage_error_of_generate_and_chat(models: Path) -> None:
    for command in ("generate", "chat"):
        line = refused(cli(command, "-m", models / "clock.gguf", "-p", "", stdin=b""), 2)
        assert line == "error: no prompt: -p/--prompt is empty"


def test_a_pipe_on_which_nothing_comes_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager or ssh may leave one open: it is waited for, not in silence."""
    monkeypatch.setattr(standard_input, "PATIENCE", 0.05)
    reader, writer = os.pipe()
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            os.write(writer, b"C")
            os.close(writer)

    with standard_input_of(reader):
        assert user_text(Settings(prompt="1"), tell) == "1\n\nC"
    assert lines == [
        "waiting for standard input (</dev/null if there is none)", "prompt: -p, then 1 byte of standard input",
    ]  # fmt: skip


def test_ctrl_c_ends_the_wait_for_a_pipe(models: Path) -> None:
    with started("-m", models / "clock.gguf", "-p", "abc", stdin=subprocess.PIPE) as process:
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        assert b"Traceback" not in process.stderr.read()


def test_in_a_conversation_the_pipe_holds_the_turns() -> None:
    assert prompt(pipe_of(b"b\n"), joins=False, prompt="a") == ("a", [])
