"""`spec-cli batch` as a process: rows in, one record a row out, and nothing lost when it is stopped."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny
from cases import A78, Done, environment, on_terminal, refused, said, shell
from conftest import cli
from hypothesis import given, settings, strategies as st

from spec_cli.batch.journal import Journal
from spec_cli.batch.lines import lines
from spec_cli.batch.order import InOrder
from spec_cli.batch.rows import BadRow, format_of, parse
from spec_cli.errors import FileError, UsageError

Record = dict[str, Any]
EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")


def batch(model: object, *args: object, **how: Any) -> Done:
    """A greedy run on one thread."""
    return cli("batch", "-m", model, "-t", 1, "--temp", 0, *args, **how)


def records(data: bytes) -> list[Record]:
    """The rows of an output, strictly JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert data.endswith(b"\n") or not data
    return [json.loads(line, parse_constant=refuse) for line in data.splitlines()]


def jsonl(*rows: Record) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def same(record: Record) -> Record:
    """A record without its times."""
    timings = {
        k: v for k, v in record.get("timings", {}).items() if k in ("predicted_n", "draft_n", "draft_n_accepted")
    }
    return {k: v for k, v in record.items() if k not in ("timings", "speculative")} | timings


# ---- framing


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b), max_size=12), st.booleans(), st.booleans())
def test_lines_end_with_lf_only(parts: list[bytes], bom: bool, last: bool) -> None:
    """Whatever the bytes are; CR before LF goes, a BOM before all goes, blank lines have numbers but are no rows."""
    data = b"\n".join(parts) + (b"\n" if last else b"")
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(b"\xef\xbb\xbf" * bom + data)
    got = [(line.number, line.data) for line in lines(reader)]
    os.close(reader)
    right = []
    for number, part in enumerate(data.split(b"\n"), 1):
        part = part.removesuffix(b"\r")
        if number == 1 and not bom:
            part = part.removeprefix(b"\xef\xbb\xbf")
        if part.strip(b" \t\r\v\f"):
            right.append((number, part))
    assert got == right


def test_a_line_without_end_is_one_bad_row_and_not_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(b'{"prompt": "')
        for _ in range(80):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"prompt": "abc"}\n')
    with path.open("rb") as file:
        long, short = lines(file.fileno())
    assert len(long.data) < 65 << 20
    with pytest.raises(BadRow, match="more than 64 MiB"):
        parse(long, "jsonl")
    assert parse(short, "jsonl").content == "abc"
    assert short.end == path.stat().st_size


def test_framing_of_a_windows_file(models: Path, tmp_path: Path) -> None:
    """B26: BOM, CRLF, a blank line, no last line end."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt":"abc"}\r\n\r\n{"prompt":"xyz"}')
    done = batch(models / "clock.gguf", path, "-n", 3)
    assert (done.returncode, [r["text"] for r in records(done.stdout)]) == (0, ["def", "abc"])
    for text in (b"abc\r\nxyz", b"\xef\xbb\xbfabc\n\n\nxyz\n", b"abc\nxyz\r\n\r\n"):
        done = batch(models / "clock.gguf", "--format", "text", "-n", 3, stdin=text)
        assert [r["text"] for r in records(done.stdout)] == ["def", "abc"]
        assert [r["prompt_tokens"] for r in records(done.stdout)] == [3, 3]


def test_other_line_separators_are_data(models: Path) -> None:
    """U+2028, U+2029 and U+0085 inside strings, raw; in text rows too."""
    odd = "a\u2028b\u2029c\x85d"
    rows = json.dumps({"prompt": odd, "id": odd}, ensure_ascii=False).encode() + b"\n" + jsonl({"prompt": "abc"})
    got = records(batch(models / "clock.gguf", "-n", 2, stdin=rows).stdout)
    assert [r["index"] for r in got] == [0, 1]
    assert got[0]["id"] == odd
    assert got[0]["prompt_tokens"] == len("abcd") + len("\u2028\u2029\x85".encode())
    got = records(batch(models / "clock.gguf", "-n", 2, "--format", "text", stdin=(odd + "\nabc").encode()).stdout)
    assert len(got) == 2


def test_the_format_is_the_file_names_else_the_first_lines() -> None:
    assert format_of("a.jsonl", b"hello") == format_of("a.ndjson", b"x") == format_of("", b' {"prompt"') == "jsonl"
    assert format_of("", b"[") == format_of("", b'["a"]') == format_of("", b'"abc"') == "jsonl"
    assert format_of("", b"42") == "text"
    assert format_of("a.txt", b'{"prompt"') == format_of("", b"hello") == format_of("a.csv", b"[INST] x") == "text"


# ---- rows


def test_one_bad_line_stops_nothing(models: Path, tmp_path: Path) -> None:
    """B24: seven records in the order of the input."""
    path = tmp_path / "rows.jsonl"
    bad = [b"[1,2]", b'{"prompt":5}', b'{"prompt":', b'{"id":"x"}', b'{"prompt":"a\xff"}']
    path.write_bytes(b"\n".join([b'{"prompt":"abc"}', *bad, b'{"prompt":"xyz"}']) + b"\n")
    done = batch(models / "clock.gguf", path, "-n", 4)
    assert done.returncode == 1
    assert said(done)[-1] == "error: 5 rows failed: the records with the key error say why"
    assert b"Traceback" not in done.stderr
    got = records(done.stdout)
    assert [r["index"] for r in got] == list(range(7))
    assert (got[0]["text"], got[6]["text"]) == ("defg", "abcd")
    assert [r["error"]["line"] for r in got[1:6]] == [2, 3, 4, 5, 6]
    for record, words in zip(got[1:6], ("a list", "a number", "not JSON", "no prompt", "0xff"), strict=True):
        assert words in record["error"]["reason"]
    assert got[4]["id"] == "x"
    assert not any("id" in r for r in (got[0], got[1], got[5]))


def why(row: object) -> str:
    from spec_cli.batch.lines import Line

    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    with pytest.raises(BadRow) as caught:
        parse(Line(1, data, 0), "jsonl")
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "a", "temprature": 1}, "unknown field 'temprature' (did you mean 'temperature'?)"),
        ({"prompt": "a", "temp": "hot"}, "temp: 'hot' is not a number"),
        ({"prompt": "a", "top_p": 2}, "top_p: 2 is out of range (0 to 1)"),
        ({"prompt": "a", "threads": 2}, "unknown field 'threads'"),
        ({"prompt": "a", "model_draft": "x"}, "unknown field 'model_draft'"),
        ({"prompt": "a", "messages": []}, "not both"),
        ({"messages": []}, "messages is an empty list: at least one"),
        ({"messages": [{"role": "user"}]}, "messages[0]: content is nothing"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only parts of type text"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}, "'tool_calls' cannot be used"),
        ({"prompt": "a", "stream": True}, "stream: True cannot be done here"),
        ({"prompt": "a", "n": 2}, "n: 2 cannot be done here"),
        ({"prompt": "a", "tools": [{"type": "function"}]}, "tools: [{'type': 'function'}] cannot be done here"),
        (b'{"prompt": "a", "id": 1e999}', "1e999 is too large a number"),
        ({"prompt": "a", "top_logprobs": 3}, "needs logprobs: true"),
        ({"prompt": "a", "stop": [""]}, "stop: an empty text"),
        ({"custom_id": "q", "url": "/v1/embeddings", "body": {"prompt": "a"}}, "neither /v1/chat/completions"),
        ({"custom_id": "q", "body": 3}, "no body"),
        ({"custom_id": "q", "body": {"prompt": "a"}, "prompt": "b"}, "unknown field 'prompt' beside the body"),
        (b'{"prompt": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"prompt": "a", "temp": NaN}', "NaN is no JSON value"),
        (b"[" * 100000, "not JSON"),
    ],
)
def test_a_bad_row_says_what_is_wrong_with_it(row: object, words: str) -> None:
    assert words in why(row)


def test_a_row_may_set_what_a_request_may(models: Path) -> None:
    """llama-server's and OpenAI's names; what is not used is said, once."""
    rows = [
        {"prompt": "abc", "max_tokens": 2, "id": 7},
        {"prompt": "abc", "n_predict": 9, "stop": "hi", "model": "gpt-4"},
        {"prompt": "abc", "max_completion_tokens": 9, "stop": ["g"], "temperature": 0.5, "seed": 3, "model": "x"},
        {"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"prompt": "xyz", "max_tokens": 3}},
        {"prompt": "abc", "raw": True, "top_k": 1, "n": 1, "stream": False, "max_tokens": None},
    ]
    done = batch(models / "clock.gguf", "-n", 4, stdin=jsonl(*rows))
    got = records(done.stdout)
    assert done.returncode == 0
    assert [r["text"] for r in got] == ["de", "defg", "def", "abc", "defg"]
    assert [r.get("id") for r in got] == [7, None, None, "c", None]
    assert (got[1]["stop"], got[2]["stop"], got[2]["seed"]) == ("hi", "g", 3)
    assert [line for line in said(done) if "is not used" in line] == ["field 'model' of rows is not used"]


def test_conversations_use_the_models_template(smol: Path) -> None:
    """As -p with -sys does; parts of type text are joined; a row's own system message wins."""
    right = cli("generate", "-m", smol, "-t", 1, "--temp", 0, "-n", 8, "-p", "Hi there", "-sys", "Be brief.", "--json")
    ask = {"role": "user", "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]}
    rows = [
        {"messages": [{"role": "system", "content": "Be brief."}, ask]},
        {"messages": [ask]},
        {"prompt": "Hi there"},
        {"messages": [ask], "raw": True},
    ]
    done = batch(smol, "-n", 8, "-c", 512, "-sys", "Be brief.", stdin=jsonl(*rows))
    got = records(done.stdout)
    assert {r["text"] for r in got[:3]} == {json.loads(right.stdout)["text"]}
    assert {r["prompt_tokens"] for r in got[:3]} == {json.loads(right.stdout)["prompt_tokens"]}
    assert got[3]["error"]["reason"] == "messages: raw leaves the chat template out"
    assert got[1]["timings"]["cache_n"] + got[2]["timings"]["cache_n"] > 20, "the beginning was decoded once"


def test_a_file_without_a_template_takes_no_conversations(models: Path) -> None:
    (got,) = records(batch(models / "clock.gguf", stdin=jsonl({"messages": [{"role": "user", "content": "a"}]})).stdout)
    assert "clock.gguf has no chat template" in got["error"]["reason"]


def test_a_row_chooses_its_drafter_within_the_run(models: Path) -> None:
    """What the run has no model or no room for is an error record; 0 guesses is plain decoding."""
    rows = [
        {"prompt": A78, "spec_type": "none"},
        {"prompt": A78, "spec_type": "ngram-simple", "n_max": 2},
        {"prompt": A78, "n_max": 0},
        {"prompt": A78, "spec_type": "draft-simple"},
        {"prompt": A78, "n_max": 9},
        {"prompt": A78, "spec_type": "eagle"},
    ]
    done = batch(models / "clock.gguf", "-n", 20, "--spec-ngram-simple-size-n", 3, stdin=jsonl(*rows))
    got = records(done.stdout)
    assert {r["text"] for r in got[:3]} == {tiny.alphabet(20)}
    assert [r["timings"]["draft_n"] > 0 for r in got[:3]] == [False, True, False]
    assert len(got[1]["speculative"]["accepted_per_position"]) == 2
    assert [r["speculative"]["types"] for r in got[:3]] == [["none"], ["ngram-simple"], ["none"]]
    reasons = [r["error"]["reason"] for r in got[3:]]
    for reason, words in zip(
        reasons, ("needs a draft model", "more than the 8 guesses", "unknown speculative"), strict=True
    ):
        assert words in reason


# ---- neighbours (B22)


def alone(model: object, prompt: str, *args: object) -> Record:
    done = cli("generate", "-m", model, "-t", 1, "--temp", 0, "--raw", "-p", prompt, "--json", *args)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("n", [1, 4])
def test_a_row_knows_nothing_of_the_rows_before(models: Path, shared: Path, tmp_path: Path, n: int) -> None:
    """B22: recurrent memory, three lines, the first again."""
    subprocess.run([sys.executable, shared / "cases" / "mk_mamba.py"], check=True, cwd=tmp_path)
    model = tmp_path / "tiny_mamba.gguf"
    done = batch(model, "-np", n, "-n", 24, "--format", "text", stdin=b"abcabc\nabcabd\nabcabc\n")
    texts = [r["text"] for r in records(done.stdout)]
    assert texts == ["tocitkvjjvjjjjjjjjjjjjjj", "aydrcimhayzxoxjxeaymulam", "tocitkvjjvjjjjjjjjjjjjjj"]


@pytest.mark.parametrize("n", [1, 3])
def test_the_same_prompt_three_times_is_the_same_answer(smol: Path, n: int) -> None:
    """B22: all of it is in memory already, and one row is decoded all the same."""
    prompt = "The capital of France is"
    right = alone(smol, prompt, "-n", 16, "-c", 512)
    done = batch(smol, "-np", n, "-n", 16, "-c", 512, "--raw", "--format", "text", stdin=f"{prompt}\n".encode() * 3)
    got = records(done.stdout)
    assert [r["text"] for r in got] == [right["text"]] * 3
    assert got[2]["timings"]["cache_n"] == right["prompt_tokens"] - 1 or n > 1


@pytest.mark.parametrize("n", [1, 2])
def test_drafts_never_come_from_another_row(models: Path, n: int) -> None:
    """B22: after 78 letters, `xyz` has nothing to look back to."""
    flags = ("-n", 20, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 3, "--spec-ngram-simple-size-m", 8)
    done = batch(models / "clock.gguf", "-np", n, *flags, stdin=jsonl({"prompt": A78}, {"prompt": "xyz"}))
    for record, prompt in zip(records(done.stdout), (A78, "xyz"), strict=True):
        right = alone(models / "clock.gguf", prompt, *flags)
        assert record["text"] == right["text"]
        for key in ("draft_n", "draft_n_accepted"):
            assert record["timings"][key] == right["timings"][key]
    assert records(done.stdout)[1]["timings"]["draft_n"] == 0


def test_rates_are_null_where_nothing_was_drafted(models: Path, tmp_path: Path) -> None:
    """B40: valid JSON everywhere, and drafted = accepted + rejected in the sums too."""
    stats = tmp_path / "stats.json"
    done = batch(models / "clock.gguf", "-n", 3, "--stats", stats, "--format", "text", stdin=b"abc\n")
    (got,) = records(done.stdout)
    assert got["speculative"]["acceptance_rate"] is None
    whole = json.loads(stats.read_text())
    assert whole["speculative"]["acceptance_rate"] is None
    assert "speculation: nothing was drafted" in said(done)
    model = models / "clock.gguf"
    done = batch(model, "-md", model, "--spec-draft-n-max", 4, "-n", 21, "--stats", stats, stdin=b"abc\nbcd\nxyz\n")
    got, whole = records(done.stdout), json.loads(stats.read_text())
    for key in ("drafted", "accepted"):
        assert whole["speculative"][key] == sum(r["speculative"][key] for r in got)
    assert whole["speculative"]["drafted"] == whole["speculative"]["accepted"] > 0
    assert whole["predicted_n"] == 63
    assert whole["rows"] == {"answered": 3, "failed": 0, "skipped": 0}
    for r in got:
        assert r["timings"]["predicted_n"] == r["timings"]["draft_n_accepted"] + r["speculative"]["rounds"] + 1
    done = batch(model, "-md", models / "const_j.gguf", "-n", 20, "--stats", stats, stdin=tiny.alphabet(61).encode())
    assert json.loads(stats.read_text())["speculative"]["accepted"] == 0
    assert any(line.startswith("draft acceptance rate = 0.00000 (") for line in said(done))


# ---- order, room, streams


@given(st.permutations(range(9)))
def test_rows_are_written_in_the_order_of_the_input(order: Sequence[int]) -> None:
    written: list[str] = []
    rows = InOrder(written.append)
    for done, index in enumerate(order, 1):
        rows.put(index, str(index))
        assert written == [str(i) for i in range(len(written))]
        assert rows.waiting == done - len(written)
    assert len(written) == 9


def test_unordered_rows_come_as_they_finish(models: Path) -> None:
    rows = jsonl({"prompt": "abc", "n_predict": 200}, {"prompt": "abc", "n_predict": 2})
    args = ("-np", 2, "-c", 512, stdin_flag := "--spec-type", "none")
    assert stdin_flag
    assert [r["index"] for r in records(batch(models / "clock.gguf", *args, stdin=rows).stdout)] == [0, 1]
    assert [r["index"] for r in records(batch(models / "clock.gguf", *args, "--unordered", stdin=rows).stdout)] == [
        1,
        0,
    ]


def test_no_new_row_starts_while_too_many_wait_for_an_earlier_one(models: Path, tmp_path: Path) -> None:
    """One row of 400 tokens and many short ones: at most 4 x np of those are done before it."""
    rows = [{"prompt": "abc", "n_predict": 400}] + [{"prompt": "xyz", "n_predict": 1}] * 60
    done = batch(models / "clock.gguf", "-np", 2, "--spec-type", "none", "--stats", tmp_path / "s", stdin=jsonl(*rows))
    assert [r["index"] for r in records(done.stdout)] == list(range(61))
    free = batch(
        models / "clock.gguf", "-np", 2, "--spec-type", "none", "--unordered", stdin=jsonl(*rows)
    )  # fmt: skip
    assert [r["index"] for r in records(free.stdout)].index(0) > 20


def test_a_slow_pipe_gets_each_answer_at_once(models: Path) -> None:
    """Row by row, as from `tail -f`: no answer waits for the next row."""
    command = [sys.executable, "-m", "spec_cli", "batch", "-m", models / "clock.gguf", "-t", "1", "-n", "4"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), **pipes) as process:  # type: ignore[call-overload]
        for prompt, text in (("abc", "defg"), ("xyz", "abcd"), ("mno", "pqrs")):
            process.stdin.write(jsonl({"prompt": prompt}))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def test_an_endless_pipe_takes_no_more_memory(models: Path) -> None:
    """RSS at row 2,000 is within 5 % of that at row 200; then the reader goes, and so does the program (B29)."""
    script = f"{sys.executable} -c \"while True: print('abcdef')\" 2>/dev/null"
    producer = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
    command = [sys.executable, "-m", "spec_cli", "batch", "-m", models / "clock.gguf", "-t", "1", "-n", "4", "-np", "8"]
    with subprocess.Popen(
        command, env=environment(), stdin=producer.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        sizes = {}
        for row in range(2001):
            assert json.loads(process.stdout.readline())["index"] == row
            if row in (200, 2000):
                sizes[row] = psutil.Process(process.pid).memory_info().rss
        process.stdout.close()
        assert process.wait(timeout=2) == 0
        assert [line for line in process.stderr.read().splitlines() if b"rror" in line or b"Trace" in line] == []
    producer.kill()
    producer.wait()
    assert sizes[2000] <= 1.05 * sizes[200]


def test_a_closed_pipe_is_no_error(models: Path, tmp_path: Path) -> None:
    """B29: `batch ... | head -n 1`."""
    path = tmp_path / "rows.txt"
    path.write_text("abc\n" * 5000)
    script = '"${@:1:3}" batch "${@:5}" | head -n 1; exit ${PIPESTATUS[0]}'
    start = time.monotonic()
    done = shell(script, path, "-m", models / "clock.gguf", "-t", 1, "-n", 200, "-q")
    assert done.returncode in (0, 141), done.stderr
    assert len(records(done.stdout)) == 1
    assert done.stderr == b""
    assert time.monotonic() - start < 20


# ---- refusals


def test_what_cannot_work_is_refused_before_anything_is_loaded(models: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.txt", tmp_path / "out.jsonl"
    rows.write_text("abc\n")
    out.write_text("precious\n")
    model = models / "clock.gguf"
    for args, code, words in (
        ((rows, "-o", out), 2, "out.jsonl exists: --resume goes on with it"),
        ((rows, "-o", rows), 2, "rows.txt is the file of -f"),
        ((rows, "--stats", rows), 2, "--stats: "),
        ((rows, "-o", tmp_path / "new", "--stats", tmp_path / "new"), 2, "is written by -o"),
        ((rows, "-o", tmp_path / "new", "--stats", tmp_path / "new.meta.json"), 2, "is written by -o"),
        ((rows, "--resume"), 2, "--resume: needs -o FILE"),
        ((rows, "-o", tmp_path / "new", "--retry-errors"), 2, "--retry-errors: needs --resume"),
        ((rows, "-o", out, "--resume"), 3, "out.jsonl.meta.json says how"),
        ((rows, "-o", tmp_path), 3, "is a directory"),
        ((rows, "-o", tmp_path / "no" / "out"), 3, "there is no folder"),
        ((tmp_path / "none.jsonl",), 3, "none.jsonl: No such file"),
        ((tmp_path,), 3, "Is a directory"),
        ((rows, rows), 2, "one file at a time"),
        ((rows, "-p", "abc"), 2, "unknown flag: -p (it is one of spec-cli generate)"),
        ((rows, "-np", "0"), 2, "-np/--parallel: '0'"),
        ((rows, "-np", "256"), 2, "-np/--parallel: '256' is out of range"),
    ):
        done = batch(model, *args)
        assert (done.returncode, done.stdout) == (code, b""), (args, done.stderr)
        (line,) = said(done)
        assert words in line
    assert out.read_text() == "precious\n"
    assert rows.read_text() == "abc\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "rows.txt"]


def test_an_input_without_rows_is_refused_as_an_empty_prompt_is(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for data in (b"", b"\n \n\r\n", b"\xef\xbb\xbf"):
        done = batch(models / "clock.gguf", "-", "-o", out, stdin=data)
        assert refused(done, 2) == "error: no rows: there are none in standard input"
    assert not out.exists()


def test_fewer_rows_at_a_time_where_memory_is_short(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spec_cli import machine
    from spec_cli.plan import plan
    from spec_cli.settings import Settings

    kept: list[str] = []
    roomy = plan(Settings(model=models / "plain.gguf", ctx_size=65536, threads=1), kept.append, batch=True)
    assert roomy.target.n_sequences == 4
    monkeypatch.setattr(machine, "free_memory", lambda: 200 << 20)
    told: list[str] = []
    tight = plan(Settings(model=models / "plain.gguf", ctx_size=65536, threads=1), told.append, batch=True)
    assert 1 <= tight.target.n_sequences < 4
    assert any(f"-np/--parallel: {tight.target.n_sequences} rows at a time instead of 4" in line for line in told)
    few = Settings(model=models / "plain.gguf", parallel=8, ubatch_size=5, threads=1, spec_type=("none",))
    assert plan(few, told.append, batch=True).target.n_sequences == 5
    assert "5 rows at a time instead of 8" in told[-1]
    with pytest.raises(UsageError, match="rows leave no room for guesses in a pass of 5 tokens"):
        plan(replace(few, spec_type=None), told.append, batch=True)


# ---- the journal


def journal(path: Path, how: Record | None = None, **more: bool) -> Journal:
    return Journal(path, how or {"--temp": 0.0}, **{"resume": True, "retry_errors": False, **more})


def written(path: Path, *lines: str) -> None:
    """A file that a run made, with these records."""
    made = journal(path)
    made.begin()
    for line in lines:
        made.write(line + "\n")
    made.close()


def test_a_journal_is_gone_on_with_after_any_cut(tmp_path: Path) -> None:
    """Whatever the last bytes are, the whole records before them count and nothing else."""
    path = tmp_path / "out.jsonl"
    written(path, *(json.dumps({"index": i, "hash": f"{i:016x}", "text": "x" * i}) for i in range(3)))
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        again = journal(path)
        n = sum(end <= cut for end in ends)
        assert list(again.answered) == list(range(n))
        again.begin()
        again.close()
        assert path.read_bytes() == whole[: ends[n - 1] if n else 0]


def test_a_journal_of_other_settings_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written(path, '{"index": 0, "hash": "0"}')
    with pytest.raises(UsageError, match=r"other settings: --temp was 0.0, now 0.5, --top-k was not set, now 40"):
        journal(path, {"--temp": 0.5, "--top-k": 40})
    with pytest.raises(UsageError, match="exists: --resume goes on with it"):
        journal(path, resume=False)
    path.write_text('{"index": 0, "hash": "0"}\nnonsense\n{"index": 1, "hash": "0"}\n')
    with pytest.raises(FileError, match=r"line 2 of .* is no record of a row"):
        journal(path)


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    first = journal(path)
    first.begin()
    first.write('{"index": 0, "hash": "0"}\n')
    with pytest.raises(FileError, match="another run is writing"):
        journal(path)
    first.close()
    journal(path).close()


def test_a_file_that_came_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Two runs start at once and one is faster: the other one refuses when it wants to begin."""
    path = tmp_path / "out.jsonl"
    for resume in (False, True):
        slow, fast = journal(path, resume=resume), journal(path, resume=resume)
        fast.begin()
        fast.write('{"index": 0, "hash": "0"}\n')
        fast.close()
        with pytest.raises((UsageError, FileError), match=r"exists: --resume|has written .* meanwhile"):
            slow.begin()
        slow.close()
        assert len(records(path.read_bytes())) == 1
        path.unlink()


def test_files_of_others_beside_it_are_left_alone(tmp_path: Path) -> None:
    path, beside = tmp_path / "out.jsonl", tmp_path / "out.jsonl.meta.json"
    beside.write_text("precious")
    with pytest.raises(UsageError, match="no run of batch made it"):
        journal(path, resume=False)
    assert beside.read_text() == "precious"
    beside.unlink()
    (tmp_path / "out.jsonl.tmp").write_text("precious")
    first = journal(path)
    first.begin()
    path.chmod(0o600)
    for index in (1, 0):
        first.write(json.dumps({"index": index, "hash": "0"}) + "\n")
    first.close()
    again = journal(path)
    again.begin()
    again.finish(ordered=True)
    again.close()
    assert [r["index"] for r in records(path.read_bytes())] == [0, 1]
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.meta.json", "out.jsonl.tmp"]


@pytest.mark.parametrize(
    "line", ['{"index": "1", "hash": "0"}', '{"index": -1, "hash": "0"}', '{"index": true, "hash": "0"}']
)
def test_a_record_that_was_tampered_with_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "out.jsonl"
    written(path, line, '{"index": 3, "hash": "0"}')
    with pytest.raises(FileError, match=r"line 1 of .* is no record of a row"):
        journal(path)


def test_newer_records_replace_older_ones_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    rows = ((0, "a"), (2, "c"), (1, "b"))
    written(path, *(json.dumps({"index": index, "hash": "0", "text": text}) for index, text in rows))
    second = journal(path)
    second.begin()
    second.write(json.dumps({"index": 0, "hash": "1", "text": "new"}) + "\n")
    second.finish(ordered=False)
    assert [r["text"] for r in records(path.read_bytes())] == ["c", "b", "new"]
    second.finish(ordered=True)
    assert [r["text"] for r in records(path.read_bytes())] == ["new", "b", "c"]
    second.close()


def test_resume_answers_what_is_missing_changed_or_to_be_retried(models: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "out.jsonl", models / "clock.gguf"
    rows = [{"prompt": "abc"}, {"prompt": 5}, {"prompt": "xyz"}]
    assert batch(model, "-n", 3, "-o", out, "--resume", stdin=jsonl(*rows)).returncode == 1, "a new file"
    before = out.read_bytes()
    done = batch(model, "-n", 3, "-o", out, "--resume", stdin=jsonl(*rows))
    assert (done.returncode, out.read_bytes()) == (1, before), "error rows count as answered, and as failed"
    assert said(done)[-1] == "error: 1 row failed in an earlier run (--retry-errors tries again)"
    assert any(line.startswith("3 skipped in") for line in said(done))
    done = batch(model, "-n", 3, "-o", out, "--resume", "--retry-errors", stdin=jsonl(*rows, {"prompt": "mno"}))
    got = records(out.read_bytes())
    assert done.returncode == 1
    assert [(r["index"], r.get("text")) for r in got] == [(0, "def"), (1, None), (2, "abc"), (3, "pqr")]
    done = batch(model, "-n", 3, "-o", out, "--resume", stdin=jsonl(*rows[:1]))
    assert "3 rows of" in said(done)[-1]
    assert "are of no row of this input, and stay" in said(done)[-1]
    rows[1] = {"prompt": "hij"}
    done = batch(model, "-n", 3, "-o", out, "--resume", stdin=jsonl(*rows, {"prompt": "mno"}))
    assert done.returncode == 0
    assert [r["text"] for r in records(out.read_bytes())] == ["def", "klm", "abc", "pqr"]
    assert "1 row changed since an earlier run, answered again" in said(done)
    done = batch(model, "-n", 4, "--spec-type", "none", "-o", out, "--resume", stdin=jsonl(*rows))
    assert done.returncode == 2
    assert "--predict was 3, now 4" in said(done)[0]
    assert "--spec-type was not set, now ['none']" in said(done)[0]
    done = batch(model, "-n", 3, "-np", 1, "-b", 300, "-o", out, "--resume", stdin=jsonl(*rows, {"prompt": "mno"}))
    assert done.returncode == 0, "what only changes the speed may change"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """200 rows of all kinds, some bad, some long, with seeds of their own."""
    rng = random.Random(1)
    rows: list[bytes] = []
    for i in range(200):
        prompt = "".join(rng.choice(tiny.LETTERS) for _ in range(rng.randrange(1, 60)))
        row: Record = {"prompt": prompt, "seed": i, "n_predict": rng.randrange(40, 160), "id": f"row {i}"}
        rows.append(json.dumps(row).encode() if i % 17 else b'{"prompt": ' + str(i).encode())
    return b"\n".join(rows) + b"\n"


def test_killed_thirty_times_it_ends_with_every_row_once(models: Path, tmp_path: Path, job: bytes) -> None:
    """kill -9 at random moments, --resume each time: the file is that of a run which nobody disturbed."""
    rng = random.Random(2)
    rows, whole, out = tmp_path / "rows.jsonl", tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    rows.write_bytes(job)
    args = f"-m {models / 'plain.gguf'} -t 1 -np 3 -c 512 -q --spec-ngram-simple-size-n 3".split()
    command = [sys.executable, "-m", "spec_cli", "batch", str(rows), *args, *EXACT]
    assert subprocess.run([*command, "-o", str(whole)], env=environment(), check=False).returncode == 1
    killed = 0
    for turn in range(30):
        size = out.stat().st_size if out.exists() else 0
        process = subprocess.Popen([*command, "-o", str(out), "--resume"], env=environment())
        if turn % 6 == 5:  # while it starts
            time.sleep(rng.uniform(0, 0.5))
        else:  # in the middle of its work
            grown = rng.randrange(0, 1800)
            while process.poll() is None and (out.stat().st_size if out.exists() else 0) <= size + grown:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.01))
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed == 30
    assert 30 < len(records(out.read_bytes()[: out.read_bytes().rfind(b"\n") + 1])) < 200
    assert subprocess.run([*command, "-o", str(out), "--resume"], env=environment(), check=False).returncode in (0, 1)
    got, right = records(out.read_bytes()), records(whole.read_bytes())
    assert [r["index"] for r in got] == list(range(200))
    assert [same(r) for r in got] == [same(r) for r in right]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_finishes_the_rows_that_run(
    models: Path, tmp_path: Path, job: bytes, number: int, code: int
) -> None:
    out = tmp_path / "out.jsonl"
    args = ["-m", str(models / "plain.gguf"), "-t", "1", "-np", "3", "-c", "512", "-o", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "spec_cli", "batch", *args],
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(job)
        process.stdin.close()
        while not out.exists() or out.stat().st_size < 5000:
            time.sleep(0.002)
        process.send_signal(number)
        errors = process.stderr.read().decode()  # type: ignore[union-attr]
        assert process.wait(timeout=30) == code
    got = records(out.read_bytes())
    assert [r["index"] for r in got] == list(range(len(got)))
    assert 3 < len(got) < 200
    assert re.search(r"interrupted: finishing [123] rows? \(once more stops at once\)", errors)
    assert f"{len(got)} rows are in {out}; go on with: spec-cli batch " in errors
    assert errors.rstrip().endswith("interrupted")
    assert "--resume" in errors


def test_the_second_signal_stops_at_once(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    long = tiny.plain(tmp_path / "long.gguf", n_ctx=1 << 15)
    args = ["-m", str(long), "-t", "1", "-np", "2", "-c", "16384", "-o", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "spec_cli", "batch", *args],
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(jsonl({"prompt": "a", "n_predict": 3}, *[{"prompt": "b"}] * 3))
        process.stdin.close()
        while not out.exists() or not out.stat().st_size:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        while b"once more" not in process.stderr.readline():
            pass
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read().decode()
        assert process.wait(timeout=10) == 130
        assert time.monotonic() - start < 2
    assert [r["index"] for r in records(out.read_bytes())] == [0]
    assert f"1 row is in {out}; go on with" in errors


def test_one_signal_ends_a_run_whose_reader_sleeps(models: Path) -> None:
    """Nobody reads standard output: the first signal is not lost in the blocked write."""
    rows = jsonl(*[{"prompt": "abc", "n_predict": 100}] * 200)
    with subprocess.Popen(
        [sys.executable, "-m", "spec_cli", "batch", "-m", models / "clock.gguf", "-t", "1", "--raw"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(rows)
        process.stdin.close()
        before, now = -1.0, 0.0
        while before != now or now < 0.3:  # until it does nothing any more
            time.sleep(0.3)
            before, now = now, sum(psutil.Process(process.pid).cpu_times()[:2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 143


def test_a_signal_while_waiting_for_rows_ends_it(models: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "spec_cli", "batch", *f"-m {models}/clock.gguf -t 1 -n 2 --stats {tmp_path}/s".split()],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"abc\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["text"] == "de"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        assert b"1 answered in " in process.stderr.read()  # type: ignore[union-attr]
    assert json.loads((tmp_path / "s").read_text())["rows"]["answered"] == 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_examples_of_the_readme_work_as_printed(smol: Path, tmp_path: Path) -> None:
    """A conversation in a pipe; one pipeline with jq; one job that is killed and gone on with."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"<!-- shell example -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    tool = tmp_path / "bin" / "spec-cli"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m spec_cli "$@"\n')
    tool.chmod(0o755)
    env = environment({"PATH": f"{tool.parent}:{os.environ['PATH']}", "LLAMA_ARG_THREADS": "1"})
    done = [
        subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, check=False)
        for script in examples
    ]
    assert [d.returncode for d in done] == [0, 0, 0], done
    talk, piped, killed = done
    assert len(talk.stdout.splitlines()) >= 2
    assert re.match("(?ms)1 .*^2 .*^3 ", piped.stdout.decode())
    assert killed.stdout.split()[-1] == b"24"
    assert b" skipped in " in killed.stderr or killed.stderr.count(b"answered in") == 1, "killed, or a fast machine"
    assert [r["index"] for r in records((tmp_path / "answers.jsonl").read_bytes())] == list(range(24))


# ---- what a person sees


def test_progress_lines_come_when_asked(models: Path, tmp_path: Path, job: bytes) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"\n".join(job.split(b"\n")[:60]))
    done = batch(models / "plain.gguf", rows, "-c", 512, "--progress-every", 0.02, "-o", tmp_path / "out")
    seen = [line for line in said(done) if " running, " in line]
    assert len(seen) > 3
    assert "tokens/s" in seen[-1]
    assert seen[-1].endswith(" left")
    quiet = batch(models / "plain.gguf", rows, "-c", 512, "-q", "-o", tmp_path / "quiet")
    assert said(quiet) == ["error: 4 rows failed: the records with the key error say why"]


def test_a_bar_on_a_terminal_and_a_table_at_the_end(models: Path, tmp_path: Path, job: bytes) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"\n".join(job.split(b"\n")[:60]))
    args = (rows, "-m", models / "plain.gguf", "-t", 1, "-c", 512, "-o", tmp_path / "out")
    code, seen = on_terminal("stderr", *args, "--spec-ngram-simple-size-n", 3, command="batch", env={"TERM": "xterm"})
    assert code == 1
    assert b"4 running" in seen
    assert "━".encode() in seen
    end = seen.decode().splitlines()[-8:]
    assert any("draft acceptance rate = " in line for line in end)
    assert any(line.startswith("drafter       drafts") for line in end)
    assert any(line.startswith("ngram-simple ") for line in end)
    code, seen = on_terminal("stderr", *args[:-1], tmp_path / "dumb", command="batch", env={"TERM": "dumb"})
    assert b"\x1b" not in seen
