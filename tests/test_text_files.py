"""Files that a person writes: a byte order mark, as Notepad and PowerShell put it, is no part of the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import said
from conftest import cli
from test_batch import records

from spec_cli.cli.checked import checked
from spec_cli.config import load, resolve
from spec_cli.errors import FileError

MARK = b"\xef\xbb\xbf"


def test_a_models_toml_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """Nayjest/lm-proxy#79: "Invalid statement (at line 1, column 1)"."""
    path = tmp_path / "models.toml"
    for end in (b"\n", b"\r\n"):
        path.write_bytes(MARK + end.join([b"[models.a]", b'model = "a.gguf"', b"[defaults]", b"temp = 0.5", b""]))
        assert list(load(path, {}).models) == ["a"]
        assert resolve({"config": str(path), "model": "a"}, {}).temp == 0.5
    path.write_bytes(MARK)
    assert load(path, {}).models == {}
    path.write_text("[models.a]\n", "utf-16")
    with pytest.raises(FileError, match="cannot be read"):
        load(path, {})


@pytest.mark.parametrize(
    ("field", "text", "target"),
    [
        ("grammar_file", 'root ::= "a"', "grammar"),
        ("json_schema_file", '{"type": "string"}', "json_schema"),
        ("chat_template_file", "{{ messages[0].content }}", "chat_template"),
    ],
)
def test_a_text_file_with_a_byte_order_mark_is_read(tmp_path: Path, field: str, text: str, target: str) -> None:
    path = tmp_path / "file"
    for data in (MARK + text.encode(), MARK + text.encode() + b"\r\n"):
        path.write_bytes(data)
        settings = checked(resolve({"model": "x.gguf", field: str(path)}, {}))
        assert getattr(settings, target) == text


def test_prompts_rows_and_conversations_with_a_byte_order_mark_are_read(models: Path, tmp_path: Path) -> None:
    prompt, rows, talk, note = (tmp_path / name for name in ("p.txt", "r.jsonl", "t.json", "n.txt"))
    prompt.write_bytes(MARK + b"abc\r\n")
    rows.write_bytes(MARK + b'{"prompt": "abc"}\r\n')
    talk.write_bytes(MARK + json.dumps([{"role": "user", "content": "abc"}]).encode())
    note.write_bytes(MARK + b"abc")
    args = ("-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-n", 3)
    run: Callable[..., Any] = cli
    assert run("generate", *args, "-f", prompt).stdout == b"def\n"
    assert [r["text"] for r in records(run("batch", *args, rows).stdout)] == ["def"]
    last = ("--chat-template", "{{ messages[-1].content }}")
    done = run("chat", *args, *last, stdin=MARK + f"/load {talk}\n/regen\n/read {note}\nx\n".encode())
    assert done.stdout == b"def\nyza\n"
    assert not any("\ufeff" in line for line in said(done))
