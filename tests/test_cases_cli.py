"""Public bug reports about what a person or a script sees of `generate`, as promises (B05, B28 to B37).

Most run the tool as a process of its own. Exit codes: 2 usage, 3 file or vocabulary, 4 prompt too
long, 5 backend, 130 interrupted, 143 terminated; a closed pipe is 0.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny
from cases import A61, NGRAM_FLAGS, answer_of, generate, on_terminal, refused, said, shell, started
from conftest import ask, cli

from spec_cli.chat.prompt import chat_tokens, plain_tokens
from spec_cli.chat.template import ChatTemplate
from spec_cli.engine import Engine
from spec_cli.llama.log import C
from spec_cli.llama.model import Model
from spec_cli.settings import Settings

Make = Callable[..., Engine]


# ---- B05: vocabularies


def changed(at: int, text: bytes) -> list[bytes]:
    return [*tiny.TEXTS[:at], text, *tiny.TEXTS[at + 1 :]]


VOCABULARIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a token's text": ({"texts": changed(270, b"XYZ")}, ("270", "'l'", "'XYZ'")),
    "the BOS setting": ({"add_bos": True}, ("BOS",)),
    "the size": ({"texts": [*tiny.TEXTS, *(b"extra%d" % i for i in range(129))]}, ("285", "414")),
}


@pytest.mark.parametrize("what", VOCABULARIES)
def test_a_draft_of_another_vocabulary_is_refused_with_the_difference(models: Path, tmp_path: Path, what: str) -> None:
    """B05 (b)-(d): before any generation, in one line."""
    settings, words = VOCABULARIES[what]
    draft = tiny.clock(tmp_path / "other.gguf", **settings)
    line = refused(generate(models / "clock.gguf", "-md", draft, "-p", A61, "-n", 8), 3)
    assert str(draft) in line
    for word in words:
        assert word in line


def test_a_draft_of_another_family_is_refused_with_both_types(smol: Path, gemma: Path) -> None:
    """B05 (a): SMOL and GEMMA."""
    line = refused(generate(smol, "-md", gemma, "-p", "abc", "-n", 8), 3)
    assert "BPE" in line
    assert "SPM" in line


@pytest.mark.parametrize("what", ["ids 0 to 2", "128 more tokens"])
def test_a_draft_within_the_rule_is_accepted(models: Path, tmp_path: Path, what: str) -> None:
    """B05 (e): special tokens may be spelled otherwise; sizes may differ by 128."""
    texts = {
        "ids 0 to 2": [b"<u>", b"<bos>", b"<eos>", *tiny.TEXTS[3:]],
        "128 more tokens": [*tiny.TEXTS, *(b"extra%d" % i for i in range(128))],
    }[what]
    draft = tiny.clock(tmp_path / "other.gguf", texts=texts)
    got = answer_of(generate(models / "clock.gguf", "-md", draft, "-p", A61, "-n", 8, "--json"))
    assert got["text"] == "jklmnopq"
    assert got["speculative"]["accepted"] == got["speculative"]["drafted"] > 0


# ---- B28: the answer is bytes, not markup


def test_brackets_in_an_answer_are_printed_as_they_are(tmp_path: Path) -> None:
    """B28 (a): in a pipe and on a terminal."""
    opens, ends = len(tiny.TEXTS), len(tiny.TEXTS) + 1
    follow = {tiny.A: opens, opens: tiny.A + 1, tiny.A + 1: ends, ends: tiny.A}
    model = tiny.clock(tmp_path / "bold.gguf", follow, texts=[*tiny.TEXTS, b"[bold]", b"[/bold]"])
    args = ("generate", "-m", model, "-q", "-t", 1, "--temp", 0, "-n", 7, "-p", "a")
    right = b"[bold]b[/bold]a[bold]b[/bold]\n"
    assert cli(*args).stdout == right
    assert on_terminal("stdout", *args[1:]) == (0, right)


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1", "COLUMNS": "40"}])
def test_a_long_line_is_never_wrapped_or_coloured(models: Path, tmp_path: Path, env: dict[str, str]) -> None:
    """B28 (b): 200 letters in a file, in a pipe and on a terminal are one line without an escape."""
    args = ("-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-p", A61, "-n", 200)
    right = tiny.alphabet(261)[61:].encode() + b"\n"
    path = tmp_path / "answer.txt"
    done = shell(f'"$@" >{path}', *args, env=env)
    assert (done.returncode, path.read_bytes()) == (0, right)
    assert cli("generate", *args, env=env).stdout == right
    assert on_terminal("stdout", *args, env=env) == (0, right)
    assert env or b"\x1b" not in done.stderr


def test_brackets_in_an_error_are_printed_as_they_are(models: Path) -> None:
    """B28 (c): in a path, a value, a flag."""
    model = models / "clock.gguf"
    assert "no[/x].gguf" in refused(generate("no[/x].gguf", "-p", "a"), 3)
    assert "[/red]" in refused(generate(model, "-p", "a", "--spec-type", "[/red]"), 2)
    assert "--[/b]" in refused(generate(model, "-p", "a", "--[/b]"), 2)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says ESC [ 7 m, BEL, tab, newline, U+009B, b, c, ... after an a."""
    said = [0x1B, 0x5B, 0x37, 0x6D, 0x07, 0x09, 0x0A, 0xC2, 0x9B]
    chain = [tiny.A, *map(tiny.byte, said), tiny.A + 1]
    return tiny.clock(tmp_path_factory.mktemp("control") / "control.gguf", dict(pairwise(chain)))


def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(control: Path, tmp_path: Path) -> None:
    """B28: a model cannot drive the terminal; newline and tab are text."""
    raw = b"\x1b[7m\x07\t\n\xc2\x9bbc\n"
    args = ("-m", control, "-t", 1, "--temp", 0, "-p", "za", "-n", 11)
    assert cli("generate", *args).stdout == raw
    path = tmp_path / "answer.txt"
    assert cli("generate", *args, "-o", path).stdout == b""
    assert path.read_bytes() == raw
    for env in ({}, {"FORCE_COLOR": "1"}):
        assert on_terminal("stdout", *args, env=env) == (0, b"\\x1b[7m\\x07\t\n\\x9bbc\n")


def test_control_characters_in_an_error_are_shown_on_a_terminal(tmp_path: Path) -> None:
    """B28: a file name cannot drive it either."""
    code, shown = on_terminal("stderr", "-m", tmp_path / "a\x1b[31mb.gguf", "-p", "x")
    assert code == 3
    assert b"a\\x1b[31mb.gguf" in shown
    assert b"\x1b[31mb" not in shown


# ---- B29: closed pipes


@pytest.mark.parametrize("reader", ["head -c 5", "true"])
@pytest.mark.parametrize("flag", ["--raw", "--json", "--help"])
def test_a_closed_pipe_is_a_good_end(models: Path, flag: str, reader: str) -> None:
    """B29: exit 0, and with -q not a word: no traceback, no 'Exception ignored'."""
    n = 50 if flag == "--json" else 5000
    args = ("-m", models / "clock.gguf", "-q", "-t", 1, "--temp", 0, "-p", "abc", "-c", 8192, "-n", n, flag)
    done = shell(f'"$@" | {reader}; exit ${{PIPESTATUS[0]}}', *args)
    shown = {"--raw": b"defgh", "--json": b'{"tex', "--help": b"Usage"}[flag]
    assert done.stdout == (b"" if reader == "true" else shown)
    assert done.stderr == b""
    assert done.returncode == 0


def test_generation_stops_when_its_reader_leaves(models: Path) -> None:
    """B29: gone within 2 seconds, with the exit code 0."""
    args = ("-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-p", "abc", "-n", 7000, "-c", 8192)
    with started(*args) as process:
        assert os.read(process.stdout.fileno(), 1) == b"d"
        process.stdout.close()
        left = time.monotonic()
        code = process.wait(timeout=30)
        took = time.monotonic() - left
        errors = process.stderr.read()
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors
    assert took < 2
    assert code == 0


def test_an_answer_survives_a_closed_standard_error(models: Path) -> None:
    """B29: nobody listening to the statistics is no error; an error keeps its exit code."""
    model = models / "clock.gguf"
    for how in ("2>&-", "2>/dev/full", "2> >(true)"):
        done = shell(f'"$@" {how}', "-m", model, "-t", 1, "--temp", 0, "-p", "abc", "-n", 3)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"def\n", b""), how
    assert shell('"$@" 2>&-', "-m", "nope.gguf", "-p", "abc").returncode == 3


@pytest.mark.parametrize("how", [">&-", ">/dev/full", ">/dev/full --json", "-o /dev/full"])
def test_an_answer_that_cannot_be_written_is_one_line_of_error(models: Path, how: str) -> None:
    """B29: standard output closed, a full disk."""
    if "/dev/full" in how and not Path("/dev/full").exists():
        pytest.skip("this system has no full disk to offer")
    done = shell(f'"$@" {how}', "-m", models / "clock.gguf", "-q", "-t", 1, "--temp", 0, "-p", "abc", "-n", 3)
    (line,) = said(done)
    assert line.startswith("error: ")
    assert ("-o/--output: /dev/full" if how.startswith("-o") else "standard output") in line
    assert done.returncode in (3, 5)


# ---- B30: signals

NUMBERS = "1, 2, 3, 4, 5, 6, 7, 8, 9,"
COUNTING = ("--raw", "--temp", 0, "-s", 1, "-c", 4096, "-n", 2000, "--ignore-eos", "-p", NUMBERS)  # goes on and on
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.fixture(scope="module")
def counted(smol: Path) -> str:
    """How that goes on, whichever kernels run."""
    with Engine(Settings(model=smol, temp=0.0, ctx_size=4096, threads=1, ignore_eos=True)) as engine:
        return ask(engine, NUMBERS, predict=16).text


def begins_alike(text: str, other: str) -> bool:
    """Whether one of two texts that are not empty is how the other begins."""
    return bool(text and other) and (text.startswith(other) or other.startswith(text))


def first_line_with(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Wait until the tool has said this on standard error."""
    assert any(word in line for line in process.stderr), "ended too early"


def stopped(process: subprocess.Popen[bytes], number: int) -> tuple[bytes, bytes]:
    """Send a signal; the rest of both outputs, after less than 2 seconds."""
    process.send_signal(number)
    start = time.monotonic()
    out, errors = process.communicate(timeout=8)
    took = time.monotonic() - start
    assert took < 2, f"{took:.1f} s from the signal to the end"
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors
    return out, errors


@pytest.mark.parametrize(("number", "code", "drafts"), [(*SIGNALS[0], True), (*SIGNALS[1], False)])
def test_a_signal_while_streaming_keeps_the_text(
    smol: Path, counted: str, number: int, code: int, drafts: bool
) -> None:
    """B30: what was said stays, newline-ended, with its statistics."""
    draft = ("-md", smol) if drafts else ()
    with started("-m", smol, *draft, "-t", 1, *COUNTING) as process:
        first = os.read(process.stdout.fileno(), 1)
        time.sleep(0.3)
        out, errors = stopped(process, number)
    text = (first + out).decode("utf-8", "strict")
    assert text.endswith("\n")
    assert begins_alike(text[:-1], counted)
    assert errors.count(b"interrupted\n") == 1
    for words in (b"prompt eval time", b"total time", b"seed = 1"):
        assert words in errors.split(b"interrupted\n")[1]
    assert process.returncode == code


@pytest.fixture(scope="module")
def long_prompt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than 6,000 tokens of SMOL."""
    path = tmp_path_factory.mktemp("prompt") / "long.txt"
    path.write_text(" ".join(str(i) for i in range(1000, 2300)))
    return path


@pytest.mark.parametrize(("number", "code", "flag"), [(*SIGNALS[0], "--raw"), (*SIGNALS[1], "--json")])
def test_a_signal_inside_a_long_prompt_is_heard(
    smol: Path, long_prompt: Path, number: int, code: int, flag: str
) -> None:
    """B30: within 2 seconds, although one call of C computes 2,048 tokens."""
    with started("-m", smol, "-c", 8192, "-t", 1, "-f", long_prompt, flag) as process:
        first_line_with(process, b"speculation:")
        time.sleep(1.5)  # the model is loaded by then, and the prompt takes many seconds
        out, errors = stopped(process, number)
    assert process.returncode == code
    assert errors.count(b"interrupted\n") == 1
    if flag == "--json":
        got = answer_of(subprocess.CompletedProcess([], 0, out, errors))
        assert (got["text"], got["tokens"], got["finish_reason"]) == ("", [], "interrupted")
        assert got["prompt_tokens"] > 6000
        assert got["timings"]["prompt_n"] < 6000
    else:
        assert out.strip() == b""


def test_an_interrupted_answer_is_a_whole_json_object(smol: Path, counted: str) -> None:
    """B30: with --json the text so far is not lost."""
    with started("-m", smol, "--json", "-t", 1, *COUNTING) as process:
        first_line_with(process, b"speculation:")
        while psutil.Process(process.pid).cpu_times().user < 2:  # loading and the prompt take less
            time.sleep(0.05)
        out, errors = stopped(process, signal.SIGINT)
    got = answer_of(subprocess.CompletedProcess([], 0, out, errors))
    assert (process.returncode, got["finish_reason"]) == (130, "interrupted")
    assert begins_alike(got["text"], counted)
    assert len(got["tokens"]) == got["timings"]["predicted_n"] > 0


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_waiting_for_standard_input_ends_the_run(models: Path, number: int, code: int) -> None:
    """B30: before anything was loaded, without a traceback (a shell sees 128 + signal either way)."""
    with started("-m", models / "clock.gguf", stdin=subprocess.PIPE) as process:
        time.sleep(1.5)
        process.send_signal(number)
        assert process.wait(timeout=2) in (code, -number)
        assert b"Traceback" not in process.stderr.read()


# ---- B31: standard input


def test_without_a_prompt_there_is_an_error_at_once(models: Path) -> None:
    """B31: standard input empty, closed, or a terminal."""
    model = models / "clock.gguf"
    assert "no prompt" in refused(generate(model), 2)
    assert "no prompt" in refused(shell('"$@" <&-', "-m", model), 2)
    master, slave = os.openpty()
    with started("-m", model, stdin=slave) as process:
        assert process.wait(timeout=20) == 2
        assert b"no prompt" in process.stderr.read()
    os.close(master)
    os.close(slave)


def test_a_prompt_may_come_through_a_pipe(models: Path) -> None:
    """B31: one final line end is dropped; `-f -` says it aloud; only the answer is on standard output."""
    model = models / "clock.gguf"
    assert generate(model, "-n", 3, "-f", "-", stdin=b"xyz\n").stdout == b"abc\n"
    for data in (b"xyz", b"xyz\n", b"xyz\r\n", b"\xef\xbb\xbfxyz\n"):
        assert generate(model, "-n", 3, stdin=data).stdout == b"abc\n"


# ---- B32: bytes that are not UTF-8


def test_input_that_is_not_utf8_is_refused_with_the_byte(models: Path, tmp_path: Path) -> None:
    """B32: standard input, an argument, a file."""
    model, path = models / "clock.gguf", tmp_path / "latin1.txt"
    path.write_bytes(b"caf\xe9")
    for line in (
        refused(generate(model, "-n", 4, stdin=b"caf\xe9"), 2),
        refused(generate(model, "-n", 4, "-p", os.fsdecode(b"caf\xe9")), 2),
        refused(generate(model, "-n", 4, "-p", r"caf\xe9"), 2),
        refused(generate(model, "-n", 4, "-p", "a", "--stop", os.fsdecode(b"caf\xe9")), 2),
        refused(generate(model, "-n", 4, "-f", path), 3),
    ):
        assert "byte 3" in line
        assert "e9" in line


def test_output_is_utf8_whatever_the_locale_says(tmp_path: Path) -> None:
    """B32: eight llamas in an ASCII locale."""
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    llamas = "\N{LLAMA}" * 8
    model, args = tiny.llamas(tmp_path / "llamas.gguf"), ("-n", 32)
    done = generate(model, *args, "-p", llamas, env=env)
    assert (done.returncode, done.stdout) == (0, llamas.encode() + b"\n"), done.stderr
    assert generate(model, *args, stdin=llamas.encode(), env=env).stdout == llamas.encode() + b"\n"


def test_an_error_can_name_what_the_locale_cannot(tmp_path: Path) -> None:
    """B32: printing an error does not fail."""
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    refused(generate(tmp_path / "\N{LLAMA}.gguf", "-p", "a", env=env), 3)
    refused(generate(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf"), "-p", "a"), 3)


def test_a_nul_byte_does_not_cut_a_prompt(models: Path, tmp_path: Path) -> None:
    """B32: from a pipe, a file, an escape."""
    model, path = models / "clock.gguf", tmp_path / "nul.txt"
    path.write_bytes(b"ab\0xyz")
    args = ("-n", 3, "--json")
    for done in (
        generate(model, *args, stdin=b"ab\0xyz"),
        generate(model, *args, "-f", path),
        generate(model, *args, "-p", r"ab\x00xyz"),
    ):
        got = answer_of(done)
        assert (got["prompt_tokens"], got["text"]) == (6, "abc")


# ---- B33: the log


def test_quiet_says_nothing_and_only_an_error_on_failure(smol: Path, models: Path) -> None:
    """B33: -q."""
    done = generate(smol, "-q", "-c", 512, "-n", 4, "-p", "hi")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
    refused(generate(models / "clock.gguf", "-q", "-c", 256, "-p", tiny.alphabet(300)), 4)
    refused(generate("nope.gguf", "-q", "-p", "abc"), 3)


def test_the_default_is_a_few_lines_and_no_log(models: Path) -> None:
    """B33: which speculation is active, what it gave, how long it took."""
    lines = said(generate(models / "clock.gguf", "--raw", "-p", A61, "-n", 8, *NGRAM_FLAGS))
    starts = [
        "speculation: ngram-simple", "cut at 8 tokens (-n)",
        "draft acceptance rate = 1.00000 (    6 accepted /     6 generated)",
        "prompt eval time =", "       eval time =", "      total time =", "   graphs reused =", "seed = ",
    ]  # fmt: skip
    assert len(lines) == len(starts)
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)


def test_verbose_shows_the_loader_on_standard_error_only(models: Path) -> None:
    """B33: -v; standard output never has log text."""
    done = generate(models / "clock.gguf", "-v", "-p", A61, "-n", 8, *NGRAM_FLAGS)
    assert (done.returncode, done.stdout) == (0, b"jklmnopq\n")
    log = done.stderr.decode()
    for words in ("llama_model_loader", "acc per pos = (1.000", "statistics     ngram-simple: #calls(b,g,a) ="):
        assert words in log


def test_an_error_of_the_loader_is_one_line(models: Path, tmp_path: Path) -> None:
    """B33: the reason out of the log, not the log."""
    path = tmp_path / "cut.gguf"
    path.write_bytes((models / "clock.gguf").read_bytes()[:700_000])
    refused(generate(path, "-p", "abc"), 3)


def test_everything_is_freed_once_in_order(models: Path, engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """B33: samplers, then contexts, then models."""
    model, freed = models / "clock.gguf", []
    made = engine(model, model_draft=model, threads=1)

    def recording(name: str) -> Callable[[int], None]:
        real = getattr(C, name)
        return lambda handle: [freed.append(name), real(handle)][1]

    for name in ("llama_sampler_free", "llama_free", "llama_model_free"):
        monkeypatch.setattr(C, name, recording(name))
    ask(made, A61, predict=5)
    made.close()
    made.close()
    assert freed == ["llama_sampler_free", *["llama_free"] * 2, *["llama_model_free"] * 2]


@pytest.mark.long
def test_fifty_runs_in_a_process_leak_nothing(models: Path, engine: Make) -> None:
    """B33: loaded, asked and closed 50 times."""
    process, sizes = psutil.Process(), []
    for i in range(50):
        made = engine(models / "clock.gguf", threads=1, model_draft=models / "const_j.gguf")
        assert ask(made, A61, predict=3).text == "jkl"
        made.close()
        if i in (9, 49):
            gc.collect()
            sizes.append((process.memory_info().rss, process.num_fds(), process.num_threads()))
    (rss, fds, threads), (later, *rest) = sizes
    assert rest == [fds, threads]
    assert later < rss + (8 << 20)


# ---- B36: what cannot be created


def test_a_file_that_is_no_model_is_refused_with_role_path_and_reason(models: Path, tmp_path: Path) -> None:
    """B36: missing, a directory, cut short, not GGUF; as the draft and as the target."""
    good, cut, text = models / "clock.gguf", tmp_path / "cut.gguf", tmp_path / "README.md"
    cut.write_bytes(good.read_bytes()[:700_000])
    text.write_text("# spec-cli\n")
    reasons = {tmp_path / "nope.gguf": "exist", tmp_path: "directory", cut: "cut short", text: "not a GGUF"}
    for path, reason in reasons.items():
        for role, models_given in (("target", (path,)), ("draft", (good, "-md", path))):
            line = refused(generate(*models_given, "-p", "abc", "-n", 4), 3)
            assert role in line
            assert str(path) in line
            assert reason in line


def test_an_empty_file_and_a_bare_header_are_refused(tmp_path: Path) -> None:
    """B36: too little of a GGUF for C to read."""
    for n, data in enumerate((b"", b"GG", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16)):
        path = tmp_path / f"{n}.gguf"
        path.write_bytes(data)
        assert str(path) in refused(generate(path, "-p", "abc"), 3)


def test_a_quantised_value_cache_needs_flash_attention(models: Path) -> None:
    """B36: refused with -fa off, before anything is loaded; on its own it works."""
    model = models / "clock.gguf"
    for flag in ("--cache-type-v", "--cache-type-v-draft"):
        line = refused(generate(model, "-md", model, "-p", "abc", "-n", 4, flag, "q8_0", "--flash-attn", "off"), 2)
        assert flag in line
        assert "flash attention" in line
    done = generate(model, "-p", "abc", "-n", 4, "--cache-type-v", "q8_0")
    assert (done.returncode, done.stdout) == (0, b"defg\n")


# ---- B37: BOS


def test_there_is_exactly_one_bos(gemma: Path) -> None:
    """B37: GEMMA adds one; a text or a template that begins with one does not double it."""
    with Model(gemma, "target", dry=True) as model:
        vocab = model.vocab
        plain, spelled = plain_tokens(vocab, "1, 2, 3,"), plain_tokens(vocab, "<bos>1, 2, 3,")
        assert plain == spelled
        template = ChatTemplate("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", vocab.text(2))
        for text in ("1, 2, 3,", "a<bos>b"):
            ids = chat_tokens(vocab, template, [{"role": "user", "content": text}], parse_special=False)
            assert ids[0] == vocab.bos == 2
            assert ids.count(2) == 1
        assert chat_tokens(vocab, template, [{"role": "user", "content": "1, 2, 3,"}], parse_special=False) == plain
        assert plain_tokens(vocab, "") == plain[:1]


def test_a_process_counts_the_same_prompt_with_bos_spelled_or_not(gemma: Path) -> None:
    """B37: the same number of prompt tokens."""
    with Model(gemma, "target", dry=True) as model:
        right = len(plain_tokens(model.vocab, "1, 2, 3,"))
    done = generate(gemma, "-c", 512, "-n", 1, "--json", "-p", "<bos>1, 2, 3,")
    assert answer_of(done)["prompt_tokens"] == right


def test_an_empty_prompt_is_refused_and_a_space_is_enough(smol: Path) -> None:
    """B37: SMOL has no BOS to start from."""
    assert "-p/--prompt is empty" in refused(generate(smol, "--raw", "-c", 512, "-n", 2, "-p", "", "-q"), 2)
    assert answer_of(generate(smol, "--raw", "-c", 512, "-n", 2, "-p", " ", "--json"))["prompt_tokens"] == 1


@pytest.mark.parametrize("delay", [0.15, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0])
def test_ctrl_c_is_heard_from_the_first_moment(smol: Path, delay: float) -> None:
    """B30: while modules are imported, while the files are read, while the contexts are made."""
    command = ["generate", "-m", smol, "-t", "1", "--raw", "-p", "Once upon a time", "-n", "4000", "-c", "8192"]
    nothing: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
    process = subprocess.Popen(
        [sys.executable, "-m", "spec_cli", *map(str, command)], **nothing, stderr=subprocess.PIPE
    )
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode in (130, -signal.SIGINT), "the latter before Python runs our first line: 130 in a shell"
    assert b"Traceback" not in stderr
    assert b"Exception ignored" not in stderr
