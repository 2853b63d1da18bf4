"""What the first line tells of an input that is not made of rows at all."""

from __future__ import annotations

import shlex

from spec_cli.batch.lines import Line
from spec_cli.batch.rows import ARRAY, format_of
from spec_cli.errors import UsageError

TABLES = {".csv": "--icsv", ".tsv": "--itsv"}  # Miller's flag for each


def require_rows(name: str, form: str, first: Line | None) -> None:
    """Look at the first line that is not blank, None where there is none. form: auto, jsonl or text.

    Raises UsageError that says how rows are made of it.
    """
    whose, file = name or "standard input", shlex.quote(name) if name else "FILE"
    if first is None:
        raise UsageError(f"no rows: there are none in {whose}")
    data = first.data.strip()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{whose}: UTF-16, not UTF-8 (iconv -f UTF-16 -t UTF-8 {file})")
    kind = format_of(name, first.data) if form == "auto" else form
    table = TABLES.get(name[-4:].lower())
    if table and kind == "text" and form == "auto":
        rows = f"mlr {table} --ojsonl cat {file}"
        raise UsageError(f"{whose}: a table, not JSON lines ({rows}); --format text takes each line as a prompt")
    if kind == "jsonl" and ARRAY.match(data):
        raise UsageError(f"{whose}: a JSON array, not JSON lines (jq -c '.[]' {file})")
    if kind == "jsonl" and data == b"{":
        raise UsageError(f"{whose}: JSON of several lines, not JSON lines (jq -c . {file})")
