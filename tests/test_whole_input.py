"""An input that is not made of rows is refused once, with what makes rows of it, before anything is loaded."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from cases import refused
from test_batch import batch, records

from spec_cli.batch.lines import Line, Lines
from spec_cli.batch.whole import require_rows
from spec_cli.errors import UsageError

ROWS = [{"prompt": "abc"}, {"prompt": "xyz"}]


@pytest.mark.parametrize(
    ("name", "form", "first", "words"),
    [
        ("r.json", "auto", b"[", r"r.json: a JSON array, not JSON lines \(jq -c '.\[\]' r.json\)"),
        ("my r.json", "auto", b" [ ", r"my r.json: a JSON array, not JSON lines \(jq -c '.\[\]' 'my r.json'\)"),
        ("", "auto", b"[", r"standard input: a JSON array, not JSON lines \(jq -c '.\[\]' FILE\)"),
        ("", "jsonl", b'[{"prompt": "abc"}, {"prompt": "xyz"}]', "a JSON array"),
        ("", "auto", b'[{"prompt": "abc"},', "a JSON array"),
        ("r.jsonl", "auto", b"{", r"JSON of several lines, not JSON lines \(jq -c . r.jsonl\)"),
        ("", "auto", b"{", "JSON of several lines"),
        (
            "r.csv",
            "auto",
            b"id,prompt",
            r"r.csv: a table, not JSON lines \(mlr --icsv --ojsonl cat r.csv\); --format text",
        ),
        ("R.TSV", "auto", b"id\tprompt", "mlr --itsv --ojsonl cat R.TSV"),
        ("r.txt", "auto", "id".encode("utf-16"), r"UTF-16, not UTF-8 \(iconv -f UTF-16 -t UTF-8 r.txt\)"),
        ("", "text", "id".encode("utf-16"), "UTF-16"),
        ("r.jsonl", "auto", None, "no rows: there are none in r.jsonl"),
    ],
)
def test_what_is_not_made_of_rows_says_how_it_becomes_so(name: str, form: str, first: bytes | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_rows(name, form, None if first is None else Line(1, first, 0))


@pytest.mark.parametrize(
    ("name", "form", "first"),
    [
        ("r.json", "auto", b'{"prompt": "abc"}'), ("r.jsonl", "auto", b"[1, 2]"), ("r.jsonl", "auto", b'["a"]'),
        ("r.jsonl", "auto", b'{"prompt":'), ("r.txt", "auto", b"["), ("", "text", b"["),
        ("r.csv", "text", b"id,prompt"),
        ("r.csv", "jsonl", b'{"prompt": "abc"}'), ("r.csv", "auto", b'{"prompt": "abc"}'), ("", "auto", b"[INST] x"),
        ("csv", "auto", b"abc"), ("", "auto", b"id,prompt"),
    ],
)  # fmt: skip
def test_a_bad_first_row_is_a_row(name: str, form: str, first: bytes) -> None:
    require_rows(name, form, Line(1, first, 0))


def test_a_pretty_printed_array_is_one_error_from_a_file_and_from_a_pipe(tmp_path: Path) -> None:
    """Not one a line, with the last element answered; the model need not even be there."""
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS, indent=1))
    none = tmp_path / "none.gguf"
    none.write_bytes(b"")
    out = tmp_path / "out.jsonl"
    assert f"jq -c '.[]' {path}" in refused(batch(none, path, "-o", out), 2)
    assert "a JSON array" in refused(batch(none, stdin=path.read_bytes()), 2)
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert refused(batch(none, empty, "-o", out), 2) == f"error: no rows: there are none in {empty}"
    assert not out.exists()


def test_a_run_that_has_answered_everything_is_no_empty_one(models: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "out.jsonl", b'{"prompt": "abc"}\n'
    args = (models / "clock.gguf", "-n", 3, "-o", out)
    assert batch(*args, stdin=rows).returncode == 0
    assert batch(*args, "--resume", stdin=rows).returncode == 0
    assert "no rows" in refused(batch(*args, "--resume", stdin=b""), 2)
    assert [r["text"] for r in records(out.read_bytes())] == ["def"]


def test_looking_at_a_line_takes_nothing_away_and_waits_no_longer_than_asked() -> None:
    reader, writer = os.pipe()
    lines = Lines(reader, 2)
    start = time.monotonic()
    assert not lines.arrives(0.05)
    assert time.monotonic() - start < 1
    assert lines.take(wait=False) is None
    threading.Timer(0.05, lambda: os.write(writer, b"a\nb\n")).start()
    assert lines.arrives()
    assert lines.arrives(0)
    assert [lines.peek(), lines.peek()] == [Line(1, b"a", 2)] * 2
    os.close(writer)
    taken = [lines.take(wait=True) for _ in range(3)]
    assert [line and line.data for line in taken] == [b"a", b"b", None]
    assert lines.ended
    os.close(reader)
