"""`spec-cli chat` in a pseudo-terminal, as a person has it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import psutil
import pytest
import tiny
from conftest import cli
from terminal import Terminal

from spec_cli.chat.prompt import Prompts, plain_tokens
from spec_cli.cli.chat.markdown import MarkdownView
from spec_cli.cli.terminal import CUT
from spec_cli.engine import Engine
from spec_cli.settings import Settings
from spec_cli.tokens import common_prefix

TEMPLATE = "{% for m in messages %}{{ m.content }}.{% endfor %}{{ messages[-1].content[-1] }}"
CLOCK = ("--chat-template", TEMPLATE, "--temp", 0, "-n", 6)
# -ub 32: ggml computes attention for 64 tokens and more of a pass by another kernel, with another rounding
SEEDED = (
    "--seed", 7, "-n", 24, "-ub", 32, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 2,
    "--spec-ngram-simple-size-m", 4,
)  # fmt: skip
SGR = re.compile(rb"\x1b\[[0-9;]*m")


def messages(path: Path) -> list[dict[str, str]]:
    return list(json.loads(path.read_text("utf-8"))["messages"])


def fresh(model: Path, **settings: Any) -> Engine:
    """What the conversations with a seed are compared with."""
    plain = {"threads": 1, "ctx_size": 1024, "ubatch_size": 32, "spec_type": ("none",), "seed": 7}
    return Engine(Settings(model=model, **{**plain, **settings}))


def stat(shown: str, label: str) -> list[str]:
    """The two numbers of a line of /stats."""
    return next(line.split()[-2:] for line in shown.splitlines() if line.strip().startswith(label))


@pytest.fixture(scope="module")
def session(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One conversation with SmolLM2, step by step: what was shown, and what /save wrote."""
    home = tmp_path_factory.mktemp("home")
    got: dict[str, Any] = {"home": home}
    with Terminal(smol, *SEEDED, home=home).start() as t:

        def saved(name: str) -> list[dict[str, str]]:
            assert "saved to" in t.enter(f"/save {home / name}.json")
            return messages(home / f"{name}.json")

        t.enter("Name three rivers in France.")
        got["first"] = saved("first")
        t.enter("/regen")
        got["again"] = saved("again")
        t.enter("And three rivers in Spain, please?")
        got["stats"] = t.enter("/stats")
        got["second"] = saved("second")
        got["undo"] = t.enter("/undo")
        got["undone"] = saved("undone")
        t.enter("And three rivers in Spain, please?")
        got["same line"] = saved("same-line")
        t.enter("/undo")
        got["off"] = t.enter("/spec off")
        t.enter("And three rivers in Spain, please?")
        got["without"] = saved("without")
        t.enter("/undo")
        got["on"] = t.enter("/spec on")
        t.enter("And three rivers in Spain, please?")
        got["on again"] = saved("on-again")
        got["bye"] = t.enter("Which of them is the longest?")
        got["bye saved"] = saved("bye")
        t.enter("/set n -1")
        t.enter("/set ignore-eos on")
        before = t.place
        t.type("Write a very long story about the sea.\r")
        t.wait(lambda: t.place > before + 3)  # two lines and more of the answer, however short they are
        t.type("\x03")
        t.wait(lambda: t.at_prompt)
        got["interrupted"] = saved("interrupted")
        t.enter("/set n 24")
        t.enter("/set ignore-eos off")
        t.enter("What is it about?")
        got["after"] = saved("after")
        got["text"], got["code"] = t.text, t.leave()
    return got


def test_a_second_turn_decodes_its_new_tokens_only(smol: Path, session: dict[str, Any]) -> None:
    with fresh(smol, predict=24) as engine:
        prompts = Prompts(engine.vocab, engine.chat_template, 512, smol)
        two = prompts.tokens(session["second"][:3], engine.settings)
        one = prompts.tokens(session["second"][:1], engine.settings)
        answer = engine.generate(one, engine.settings)
        # the last token was sampled and not decoded; the text may have other tokens than those that were sampled
        held = common_prefix((one + answer.tokens)[: len(one) + answer.stats.predicted_n - 1], two)
        assert held > len(one)
    assert stat(session["stats"], "prompt, decoded")[0] == str(len(two) - held)
    assert stat(session["stats"], "prompt, in memory")[0] == str(held)


def test_regen_and_undo_with_a_seed_give_the_same_text(session: dict[str, Any]) -> None:
    assert session["again"] == session["first"]
    assert session["undo"] == "taken back: And three rivers in Spain, please?"
    assert session["undone"] == session["first"]
    assert session["same line"] == session["second"]
    assert len(session["second"]) == 4


def test_speculation_off_and_on_again_changes_no_text(session: dict[str, Any]) -> None:
    assert session["off"] == "speculation: none"
    assert session["on"] == "speculation: ngram-simple"
    assert session["without"] == session["on again"] == session["second"]


def test_an_interrupted_answer_is_kept_and_the_next_is_that_of_a_fresh_run(smol: Path, session: dict[str, Any]) -> None:
    """B30 in a conversation; and every other answer of the session too."""
    kept, after = session["interrupted"], session["after"]
    assert [m["role"] for m in after] == ["user", "assistant"] * 5
    assert after[:-2] == kept
    with fresh(smol) as engine:
        said = len(plain_tokens(engine.vocab, kept[-1]["content"]))
        assert said > 1
        prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, smol)
        for i in range(1, len(after), 2):
            engine.forget()
            settings = replace(engine.settings, predict=2 * said + 9 if i == 7 else 24, ignore_eos=i == 7)
            text = engine.generate(prompts.tokens(after[:i], settings), settings).text
            assert text[: len(after[i]["content"])] == after[i]["content"], i
            assert i == 7 or text == after[i]["content"]
    assert session["code"] == 0
    assert "Traceback" not in session["text"]


def test_a_saved_conversation_goes_on_identically_in_a_new_process(smol: Path, session: dict[str, Any]) -> None:
    home = session["home"]
    with Terminal(smol, *SEEDED, home=home).start() as t:
        loaded = t.enter(f"/load {home / 'on-again.json'}")
        assert " ".join(loaded.split()) == f"4 messages loaded from {home / 'on-again.json'}"
        t.enter("Which of them is the longest?")
        t.enter(f"/save {home / 'continued.json'}")
        assert messages(home / "continued.json") == session["bye saved"]
        assert t.enter(f"/save {home / 'first.json'}").startswith("error: /save:")  # not of this conversation
        assert messages(home / "first.json") == session["first"]
        t.type("\x03\x03")
        assert t.ended() == 0


def test_the_line_after_an_answer_has_speed_and_acceptance(session: dict[str, Any]) -> None:
    rates = r"\[ Prompt: [\d.]{3,5} t/s \| Generation: [\d.]{3,5} t/s \]\n"
    found = re.findall(
        rates + r"draft acceptance rate = \d\.\d{5} \( *\d+ accepted / *\d+ generated\)", session["text"]
    )
    without = re.findall(rates + "speculation: none, nothing was drafted", session["text"])
    assert len(found) + len(without) + len(re.findall(rates + "speculation: ngram", session["text"])) == 9
    assert len(without) == 1


# ---- the input line, on a clock: each answer goes on with the alphabet


@pytest.fixture
def clock(models: Path, tmp_path: Path) -> Any:
    """Starts conversations with the clock."""
    made: list[Terminal] = []

    def start(*args: object, **how: Any) -> Terminal:
        made.append(
            Terminal(models / "clock.gguf", *CLOCK, *args, home=tmp_path / "home", **{"columns": 120, **how}).start()
        )
        return made[-1]

    yield start
    for one in made:
        one.__exit__()


def answers(t: Terminal) -> list[str]:
    """The lines between a question and what is said about its answer."""
    return re.findall(rf"^([a-z]+){CUT}?\n\n(?:cut at \d+ tokens \(-n\)\n)?\[ Prompt", t.text, re.MULTILINE)


def test_a_turn_may_have_several_lines(clock: Any, tmp_path: Path) -> None:
    t = clock()
    t.type("a\\\rb\r")  # a trailing backslash
    t.wait(lambda: answers(t) == ["cdefgh"])
    t.type("c\x1b\rd\r")  # Alt-Enter
    t.wait(lambda: answers(t)[1:] == ["efghij"])
    t.type('"""e\r  f\\\r\rg"""\r')  # a block
    t.wait(lambda: answers(t)[2:] == ["hijklm"])
    t.type("\x1b[200~h\ri\r\x1b[201~")  # pasted
    t.wait(lambda: "i" in t.lines[t.place - 1])
    t.type("j\r")
    t.wait(lambda: answers(t)[3:] == ["klmnop"])
    t.enter(f"/save {tmp_path / 'a.json'}")
    asked = [m["content"] for m in messages(tmp_path / "a.json") if m["role"] == "user"]
    assert asked == ["a\nb", "c\nd", "e\n  f\\\n\ng", "h\ni\nj"]


def test_multiline_input_turns_the_backslash_round(clock: Any) -> None:
    t = clock("-mli")
    t.type("a\rb\\\r")
    t.wait(lambda: answers(t) == ["cdefgh"])
    assert "/exit" in t.enter("/help")  # a command is one line


def test_vi_keys(clock: Any) -> None:
    t = clock("--vi")
    t.type("xyzb")
    t.type("\x1b")
    t.wait(lambda: t.place >= 0, 1)
    t.type("0")
    t.type("3xA")  # to the beginning, delete three, append
    t.type("c\r")
    t.wait(lambda: answers(t) == ["defghi"])


def test_the_history_is_a_file_of_the_user(clock: Any, tmp_path: Path) -> None:
    t = clock()
    t.enter("ab")
    assert t.leave() == 0
    file = tmp_path / "home" / "spec-cli" / "history"
    assert "+ab" in file.read_text().splitlines()
    assert file.stat().st_mode & 0o777 == 0o600
    again = clock()
    again.type("\x1b[A")  # up
    again.wait("> ab")
    again.type("c\r")
    again.wait(lambda: answers(again) == ["defghi"])


def test_tab_completes_commands_words_and_files(clock: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("xyz\n")
    t = clock()
    t.type("/und\t")
    t.wait("> /undo")
    t.type(f"\x15/read {tmp_path}/no\t")
    t.wait("notes.txt")
    t.type("\x15/spec ng\t")
    t.wait("> /spec ngram-simple")
    t.type("\x15/set pre\t")
    t.wait("predict")
    assert "presence-penalty" in t.text


def test_files_go_before_the_next_message(clock: Any, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"in {name}")
    (tmp_path / "c.bin").write_bytes(b"\xff\xfe")
    t = clock()
    assert t.enter(f"/read {tmp_path / 'a.txt'}") == f"Loaded text from '{tmp_path / 'a.txt'}'"
    shown = t.enter(f"/glob {tmp_path}/[bc].*").replace("\n", " ")
    assert "b.txt'" in shown
    assert "left out: /glob: " in shown
    assert t.enter("/read /no/such") == "error: /read: /no/such: No such file or directory"
    assert "no file matches" in t.enter(f"/glob {tmp_path}/*.none")
    t.enter("x")
    t.enter(f"/save {tmp_path / 'a.json'}")
    head = "--- File: {}/{} ---\nin {}\n".format
    assert messages(tmp_path / "a.json")[0]["content"] == (
        head(tmp_path, "a.txt", "a.txt") + head(tmp_path, "b.txt", "b.txt") + "x"
    )


def test_edit_offers_the_last_message_again(clock: Any, tmp_path: Path) -> None:
    t = clock()
    assert t.enter("/edit") == "error: /edit: there is no message yet"
    t.enter("ab")
    t.type("/edit\r")
    t.wait("> ab")
    t.wait(lambda: t.lines[t.place] == "> ab")
    t.type("c\r")
    t.wait(lambda: answers(t) == ["cdefgh", "defghi"])
    t.enter("/edit xy")
    assert answers(t)[2:] == ["zabcde"]
    t.type("/edit\r")
    t.wait(lambda: t.lines[t.place] == "> xy")
    t.type("\x15\r")  # emptied: nothing is asked
    t.wait("the last message stays as it was")
    t.enter(f"/save {tmp_path / 'a.json'}")
    assert [m["content"] for m in messages(tmp_path / "a.json")] == ["xy", "zabcde"]


def test_commands_tell_what_they_did_and_what_cannot_be(clock: Any, tmp_path: Path) -> None:
    t = clock("-sys", "s")
    for line, words in (
        ("/exitfoo", "error: unknown command: /exitfoo (did you mean /exit?)"),
        ("/undo now", "error: /undo: takes nothing, 'now' was given"),
        ("/load", "error: /load: FILE is missing"),
        ("/load /no/such", "error: /load: /no/such: No such file or directory"),
        ("/regen", "error: no message to regenerate"),
        ("/undo", "error: there is no turn to take back"),
        ("/stats", "error: /stats: there is no answer yet"),
        ("/system", "system message: s"),
        ("/system x y", "system message: x y"),
        ('/system ""', "no system message"),
        ("/set temp 0.7", "temp = 0.7"),
        ("/set --top_k 5", "top-k = 5"),
        ("/set temp", "temp = 0.7"),
        ("/set temp hot", "error: /set temp: 'hot' is not a number"),
        ("/set tempp 1", "error: /set: unknown name 'tempp' (did you mean temp?)"),
        ("/set ctx-size 64", "error: /set ctx-size: only at the start, it needs a new context or file (--ctx-size)"),
        ("/set md x.gguf", "error: /set md: only at the start, it needs a new context or file (--model-draft)"),
        ("/set temp default", "temp = 0"),
        ("/set system-prompt x", "error: /set system-prompt: /system TEXT sets it"),
        ("/set n_max 9", "is more than the"),
        ("/set logit-bias 9999+1", "9999"),
        ("/set grammar root", "error: "),
        ("/set n 3", "predict = 3"),
        ("/spec", "speculation: ngram-simple, n_max 8"),
        ("/spec n_max 2", "speculation: ngram-simple, n_max 2"),
        ("/spec draft-simple", "error: spec_type: draft-simple needs a draft model or head"),
        ("/spec OFF", "speculation: none"),
        ("/spec NGRAM n_max 2", "speculation: ngram-simple, n_max 2"),
        ("/spec nonsense", "error: spec_type: unknown speculative type: nonsense"),
        ("/spec off n_max 3", "speculation: none"),
        ("/color maybe", "error: /color: 'maybe' is not on or off"),
        ("/color", "colours: green for accepted guesses"),
        ("/clear", "Chat history cleared."),
    ):  # fmt: skip
        assert words in t.enter(line).replace("\n", " "), line
    assert "top-k = 5" in t.enter("/set")
    assert t.enter("ab").startswith(f"cde{CUT}\n")
    t.enter("/etc/hosts a")  # a path is no command
    t.enter(" /undo")  # nor is what begins with a blank
    t.enter(f"/save {tmp_path / 'a.json'}")
    asked = [m["content"] for m in messages(tmp_path / "a.json") if m["role"] == "user"]
    assert asked == ["ab", "/etc/hosts a", " /undo"]
    t.type("/exit\r")
    assert t.ended() == 0


def test_ctrl_c_clears_the_line_and_twice_at_an_empty_one_leaves(clock: Any) -> None:
    t = clock()
    t.type("xyz")
    t.wait("> xyz")
    t.type("\x03")
    t.wait(lambda: t.at_prompt)
    hint = "(Ctrl-C again leaves, and so does Ctrl-D)"
    assert t.enter("\x03", end="") == hint
    t.enter("ab")  # something else: it counts anew
    assert t.enter("\x03", end="") == hint
    t.type("\x03")
    assert t.ended() == 0


def test_ctrl_c_at_any_moment_ends_an_answer_and_nothing_else(tmp_path: Path) -> None:
    rng, model = random.Random(3), tiny.clock(tmp_path / "plain.gguf", n_ctx=8192)
    with Terminal(model, *CLOCK, "-n", 4000, "--context-shift", "--spec-type", "none", home=tmp_path).start() as t:
        for _ in range(12):
            before = t.place
            t.type("ab\r")
            t.wait(lambda least=before: t.place > least)  # it is read
            sleep(rng.random() * 0.1)
            os.kill(t.child.pid, signal.SIGINT)
            t.wait(lambda least=before: t.at_prompt and t.place > least)
        t.enter("/set n 6")
        t.enter("xy")
        t.enter(f"/save {tmp_path / 'a.json'}")
        said = messages(tmp_path / "a.json")
        assert [m["role"] for m in said] == ["user", "assistant"] * (len(said) // 2)
        assert said[-1]["content"] == "zabcde"
        assert len(said) > 8
        assert all(tiny.alphabet(4100)[2:].startswith(m["content"]) for m in said[1:-2:2])
        before = sum(psutil.Process(t.child.pid).cpu_times()[:2])
        sleep(0.3)
        assert sum(psutil.Process(t.child.pid).cpu_times()[:2]) - before < 0.1  # nothing spins
        assert t.leave() == 0


@pytest.mark.parametrize("word", ["exit", " quit ", "/bye", "/quit"])
def test_a_word_that_leaves_elsewhere_leaves_here(clock: Any, word: str) -> None:
    """Python's, Ollama's, a database's; an error before it is no reason for another exit code."""
    t = clock()
    assert t.enter("/foo2").startswith("error: unknown command: /foo2")
    t.type(f"{word}\r")
    assert t.ended() == 0
    assert "[ Prompt" not in t.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_gives_the_terminal_back(clock: Any, number: int, code: int) -> None:
    """At the input line, and amid an answer."""
    t = clock()
    os.kill(t.child.pid, number)
    assert t.ended() == code
    assert b"\x1b[?2004l" in t.raw[-200:]  # bracketed paste is off again
    t = clock("-c", 4096, "-n", 4000)
    t.type("a\r")
    t.wait("bcdef")
    t.type("\x1c\x1a")  # Ctrl-\\ and Ctrl-Z are not heard now
    os.kill(t.child.pid, number)
    assert t.ended() == code
    assert t.scrolls_whole
    assert t.text.count("interrupted") == 1


def test_an_edit_can_be_given_up_and_keeps_what_is_not_changed(clock: Any, tmp_path: Path) -> None:
    t = clock()
    t.type('"""\rC:\\x\\\r"""\r')  # it ends with a backslash
    t.wait(lambda: "[ Prompt" in t.text and t.at_prompt)
    t.type("/edit\r")
    t.wait(lambda: t.lines[t.place] == "> C:\\x\\")
    t.type("\x03")
    t.wait("the last message stays as it was")
    t.wait(lambda: t.at_prompt)
    t.type("/edit\r")
    t.wait(lambda: t.lines[t.place] == "> C:\\x\\")
    before = t.place
    t.type("\r")  # asked again as it is
    t.wait(lambda: t.at_prompt and t.place > before)
    t.type("/edit\r")
    t.wait(lambda: t.lines[t.place] == "> C:\\x\\")
    t.type("\x15/system\r")  # a command is a command
    t.wait("no system message")
    t.wait(lambda: t.at_prompt)
    t.enter(f"/save {tmp_path / 'a.json'}")
    assert [m["content"] for m in messages(tmp_path / "a.json")][::2] == ["C:\\x\\"]


def test_an_answer_that_nobody_reads_for_a_while_is_the_last_that_is_lost(tmp_path: Path) -> None:
    """The terminal's buffer is full, Ctrl-C ends the write that waits; what comes later is shown."""
    plain = tiny.clock(tmp_path / "plain.gguf", n_ctx=65536)
    with Terminal(plain, *CLOCK, "-n", 60000, "-c", 65536, "--simple-io", home=tmp_path).start() as t:
        t.type("a\r")
        t.wait("bcdef")
        t.wait_blocked()
        t.type("\x03")
        t.wait(lambda: t.at_prompt)
        t.enter("/set n 6")
        t.enter("ab")
        assert answers(t)[-1] == "cdefgh"


# ---- the screen


@pytest.fixture(scope="module")
def long_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a, 日, e with an accent of its own, b, c, ..., z: wide and combining characters."""
    sun, accent, a = "日".encode(), "\u0301".encode(), tiny.A
    after = {a: tiny.byte(sun[0]), tiny.byte(sun[0]): tiny.byte(sun[1]), tiny.byte(sun[1]): tiny.byte(sun[2])}
    after |= {tiny.byte(sun[2]): a + 4, a + 4: tiny.byte(accent[0]), tiny.byte(accent[0]): tiny.byte(accent[1])}
    after |= {tiny.byte(accent[1]): a + 1, a + 3: a + 5}
    return tiny.clock(tmp_path_factory.mktemp("long") / "long.gguf", after, n_ctx=4096)


ROUND = "日\u00e9bcdfghijklmnopqrstuvwxyza"  # as pyte composes it


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_no_character_is_lost_or_moved_by_the_status_line(
    models: Path, long_clock: Path, tmp_path: Path, columns: int
) -> None:
    """Thousands of tokens while the line is drawn; it leaves nothing behind."""
    plain = tiny.clock(tmp_path / "plain.gguf", n_ctx=4096)
    for model, expected in ((plain, tiny.alphabet(3026)[1:3001]), (long_clock, None)):
        with Terminal(model, *CLOCK, "-n", 3000, home=tmp_path, columns=columns).start() as t:
            before = t.place
            t.type("a\r")
            t.wait(lambda: re.search(r"^\d+ tokens", t.lines[-1]) is not None)
            t.wait(lambda: t.at_prompt)
            assert all(len(line) <= columns for line in t.lines)
            shown = "".join(t.lines[before + 1 :]).split(f"{CUT}cut at 3000 tokens")[0]
            if expected:
                assert shown == expected
            else:
                assert set(re.split("(?=日)", shown)[1:-1]) == {ROUND}
            assert "tokens  " not in t.text
            assert t.scrolls_whole


def test_the_screen_may_change_its_size_amid_an_answer(tmp_path: Path) -> None:
    plain = tiny.clock(tmp_path / "plain.gguf", n_ctx=4096)
    with Terminal(plain, *CLOCK, "-n", 3500, home=tmp_path).start() as t:
        t.type("a\r")
        for columns, lines in ((100, 30), (60, 20), (120, 10)):
            t.wait_for_more()
            t.resize(columns, lines)
        t.wait(lambda: t.at_prompt and "[ Prompt" in t.text)
        assert t.scrolls_whole
        t.enter("ab")
        assert t.leave() == 0


def test_no_colours_where_they_are_not_wanted(models: Path, tmp_path: Path) -> None:
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with Terminal(models / "clock.gguf", *CLOCK, "--color", "auto", home=tmp_path, env=env).start() as t:
            t.type("ab\r")
            t.wait("cdefgh")
            t.wait("[ Prompt")
            assert {code for code in SGR.findall(t.raw) if code not in (b"\x1b[0m", b"\x1b[m")} == set()
            assert t.leave() == 0
            if env.get("TERM"):
                assert b"\x1b" not in t.raw


def test_accepted_guesses_have_their_colour(models: Path, tmp_path: Path) -> None:
    guess = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 2, "--spec-ngram-simple-size-m", 4)
    with Terminal(models / "clock.gguf", *CLOCK, *guess, "-n", 60, "--color", "on", home=tmp_path).start() as t:
        t.enter("a")
        assert b"\x1b[32m" in t.raw
        before = len(t.raw)
        t.enter("/color off")
        t.enter("a")
        assert b"\x1b[32m" not in t.raw[before:]


def test_plain_lines_on_a_terminal(clock: Any) -> None:
    t = clock("--simple-io")
    t.enter("ab")
    t.type("c\\\r")
    t.wait(lambda: t.lines[t.place - 1] == "> c\\")
    t.type("d\r")
    t.wait(lambda: answers(t) == ["cdefgh", "efghij"])
    assert b"\x1b" not in t.raw
    assert t.leave() == 0


def test_nothing_of_an_answer_vanishes_in_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HTML, definitions of links, pictures, markup: as text. Written in pieces it is the same as at once."""
    text = (
        "vector<int> [bold]b[/bold] &amp; <b>x</b>\n\n<div>\nyes\n</div>\n\n[1]: http://a.b/c\n\n![pic](d.png) "
        "*so*\n\n- one\n- two\n\n```python\nif a < b:\n    pass\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    )
    for size in (len(text), 7):
        view = MarkdownView()
        for i in range(0, len(text), size):
            view.write(text[i : i + size])
            view._settle()
        view.end()
        shown = capsys.readouterr().out
        for part in ("vector<int>", "[bold]b[/bold]", "<b>x</b>", "<div>", "</div>", "[1]: http://a.b/c", "d.png",
                     "pic", "one", "two", "if a < b:", " 1 ", "end"):  # fmt: skip
            assert shown.count(part) == 1, part


def test_thoughts_and_markdown_do_not_mix(tmp_path: Path) -> None:
    start, end = len(tiny.TEXTS), len(tiny.TEXTS) + 1
    texts, kinds = [*tiny.TEXTS, b"<think>", b"</think>"], [*tiny.KINDS, tiny.T.USER_DEFINED, tiny.T.USER_DEFINED]
    follow = {tiny.A + 9: end, end: tiny.A + 10}
    model = tiny.clock(tmp_path / "thinks.gguf", follow, texts=texts, kinds=kinds)
    assert start < end
    template = "{{ messages[-1].content }}{% if false %}<think>{% endif %}<think>"
    follow[start] = tiny.A
    model = tiny.clock(tmp_path / "thinks.gguf", follow, texts=texts, kinds=kinds)
    with Terminal(model, "--temp", 0, "-n", 27, "--chat-template", template, "--markdown", home=tmp_path).start() as t:
        shown = t.enter("x").split("\n\ncut at 27 tokens (-n)\n[ Prompt")[0]
        assert shown == "[Start thinking]\nabcdefghij\n[End thinking]\n\nklmnopqrstuvwxyz"
        assert b"\x1b[2m" in t.raw  # dimmed


def test_markdown_is_shown_once(long_clock: Path, tmp_path: Path) -> None:
    with Terminal(long_clock, *CLOCK, "-n", 300, "--markdown", home=tmp_path).start() as t:
        shown = t.enter("a").split("cut at")[0].replace("\n", "")
        assert set(re.split("(?=日)", shown)[1:-1]) == {ROUND}
        assert t.enter("/color").startswith("error: /color: --markdown renders the answer")
    done = cli("chat", "-m", long_clock, *CLOCK, "--markdown", stdin=b"a\n")
    assert done.stdout.decode().startswith("日")
    assert b"--markdown: standard output is no terminal" in done.stderr
