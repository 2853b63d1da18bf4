"""Files that are written: what is there stays, devices are always fine."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from cases import generate, refused, said, shell
from conftest import cli

CHAT = ("-t", 1, "--temp", 0, "-n", 3, "--chat-template", "{{ messages[-1].content }}")


def test_no_answer_is_written_over_another(models: Path, tmp_path: Path) -> None:
    """generate, chat and batch refuse alike, before anything is loaded."""
    file = tmp_path / "a.txt"
    args = ("-n", 3, "-p", "abc", "-o", file)
    assert generate(models / "clock.gguf", *args).returncode == 0
    assert file.read_text() == "def\n"
    assert refused(generate("no.gguf", *args), 3) == (
        f"error: -o/--output: {file} exists: remove it or give another name"
    )
    assert "exists: remove it" in refused(generate("no.gguf", *args, "--json"), 3)
    assert "exists: remove it" in refused(cli("chat", "-m", "no.gguf", "-o", file), 3)
    assert f"{file} exists" in refused(cli("batch", "-m", "no.gguf", "-o", file), 2)
    assert file.read_text() == "def\n"


def test_an_empty_file_may_be_filled(models: Path, tmp_path: Path) -> None:
    """As mktemp makes one."""
    (tmp_path / "a").touch()
    assert generate(models / "clock.gguf", "-n", 3, "-p", "abc", "-o", tmp_path / "a").returncode == 0
    assert (tmp_path / "a").read_text() == "def\n"
    (tmp_path / "b").touch()
    cli("chat", "-m", models / "clock.gguf", *CHAT, stdin=f"a\n/save {tmp_path / 'b'}\n".encode())
    assert len(json.loads((tmp_path / "b").read_text())["messages"]) == 2


def test_devices_and_pipes_are_written_to_at_any_time(models: Path, tmp_path: Path) -> None:
    """/dev/null, /dev/stdout, also where that is a file with something in it, and a FIFO."""
    log, fifo = tmp_path / "log", tmp_path / "fifo"
    log.write_text("before\n")
    args = ("-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-n", 3, "-p", "abc", "-q", "-o")
    for _ in range(2):
        assert shell(f'"$@" >> {log}', *args, "/dev/stdout").returncode == 0
        assert cli("generate", *args, os.devnull).returncode == 0
    assert log.read_text() == "before\ndef\ndef\n"
    os.mkfifo(fifo)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()))
    reader.start()
    script = f"a\n/save {os.devnull}\n/save {fifo}\n/save {os.devnull}\n"
    done = cli("chat", "-m", models / "clock.gguf", *CHAT, stdin=script.encode())
    reader.join(timeout=20)
    assert [line for line in said(done) if "saved to" in line] == [
        f"2 messages saved to {os.devnull}", f"2 messages saved to {fifo}", f"2 messages saved to {os.devnull}",
    ]  # fmt: skip
    assert json.loads(got[0])["messages"][0]["content"] == "a"
    assert not os.path.isfile(os.devnull)
