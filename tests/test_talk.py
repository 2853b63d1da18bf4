"""A conversation, whatever was done before: each answer is a fresh run's on the messages shown."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given, strategies as st
from pairs import SMALL, Pair

from spec_cli.chat.channels import Channels
from spec_cli.chat.conversation import Conversation
from spec_cli.chat.prompt import Prompts
from spec_cli.chat.talk import Reply, Talk
from spec_cli.chat.thinking import HARMONY, KNOWN, Marks, Thinking, marks_of
from spec_cli.engine import Engine
from spec_cli.errors import Interrupted, PromptError, UsageError
from spec_cli.llama.log import C
from spec_cli.scheduler import Job
from spec_cli.settings import Settings
from spec_cli.tokens import Kind, common_prefix

pytestmark = pytest.mark.long

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{{ '.' if m.role == 'user' else ';' if m.role == 'assistant' else '!' }}"
    "{% endfor %}"
)
NGRAM = {"spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 4}


class Heard:
    """What a listener was told. abort_after: stop the answer after so many passes."""

    def __init__(self, engine: Engine, abort_after: int | None = None) -> None:
        self.engine, self.left = engine, abort_after
        self.pieces: list[tuple[str, bool]] = []

    def write(self, text: str, thought: bool) -> None:
        self.pieces.append((text, thought))

    def mark(self, kind: Kind) -> None: ...

    def watch(self, job: Job) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.engine.abort.set()


@pytest.fixture
def talk() -> Iterator[Callable[..., Talk]]:
    """Makes conversations and closes their engines."""
    made: list[Engine] = []

    def make(model: Path, say: Callable[[str], None] = lambda line: None, **more: Any) -> Talk:
        kept = {**SMALL, "raw": False, "model": model, "chat_template": TEMPLATE, "predict": 12, **NGRAM, **more}
        made.append(Engine(Settings(**kept), say, free=True))
        return Talk(made[-1], made[-1].settings)

    yield make
    for engine in made:
        engine.close()


def fresh(engine: Engine, talk: Talk) -> str:
    """What plain decoding says after the messages before the last answer, with nothing in memory."""
    engine.forget()
    last = max(i for i, m in enumerate(talk.conversation.messages) if m["role"] == "assistant")
    prompts = Prompts(engine.vocab, TEMPLATE, engine.target.n_ctx, None)
    prompt = prompts.tokens(talk.conversation.messages[:last], talk.settings)
    return engine.generate(prompt, replace(talk.settings, spec_type=engine.settings.spec_type)).text


def asked(talk: Talk, text: str, abort_after: int | None = None) -> Reply:
    heard = Heard(talk.engine, abort_after)
    try:
        reply = talk.ask(text, heard)
    finally:
        talk.engine.abort.clear()
    assert "".join(piece for piece, thought in heard.pieces if not thought) == reply.text
    return reply


KINDS = ["plain", "swa", "mamba", "hybrid", "draft", "mimo", "mimo-window", "gemma4", "eagle3", "qwen35"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_that_of_a_fresh_run(
    models: Path, pairs: dict[str, Pair], talk: Callable[..., Talk], kind: str
) -> None:
    """Turns, interruptions at any pass, /undo, /regen, another system message, /spec off and on, other n_max, seeds."""
    draft: Path | None
    if kind in pairs:
        model, draft = pairs[kind].target, pairs[kind].head
    else:
        model, draft = models / f"{'plain' if kind == 'draft' else kind}.gguf", None
        draft = models / "swa.gguf" if kind == "draft" else None
    one = talk(model, model_draft=draft)
    plain = Engine(replace(one.engine.settings, spec_type=("none",), model_draft=None))
    on, rng = one.engine.settings.spec_type, random.Random(kind)
    drafted = reused = 0
    with plain:
        for turn in range(14):
            settings = one.settings
            what = rng.choice(["ask", "ask", "ask", "stop", "undo", "regen", "system", "off", "n_max", "hot"])
            if what == "undo" and one.conversation.starts:
                one.conversation.undo()
            elif what == "system":
                one.conversation.system = rng.choice([None, "xyz", "abcabc"])
            settings = replace(
                settings, spec_type=("none",) if what == "off" else on,
                spec_draft_n_max=rng.randrange(1, 9) if what == "n_max" else None, seed=turn,
                temp=0.9 if what == "hot" else 0.0,
            )  # fmt: skip
            one.engine.check(settings)
            one.settings = settings
            held = one.engine.target.memory.held(0)
            if what == "regen" and one.conversation.starts:
                reply = one.regenerate(Heard(one.engine))
            else:
                reply = asked(one, "abcdefgh"[: rng.randrange(1, 8)], rng.randrange(1, 5) if what == "stop" else None)
            stats, whole = reply.answer.stats, fresh(plain, one)
            assert stats.cache_n + stats.prompt_n == reply.answer.n_prompt or what == "stop"
            assert reply.text == whole[: len(reply.text)], (turn, what)
            assert what == "stop" or len(reply.text) == len(whole)
            assert not (what == "off" and stats.total.drafted)
            if kind in ("plain", "draft", "mimo", "eagle3") and what != "stop":
                prompt = one.engine.target.memory.held(0)[: reply.answer.n_prompt]
                known = min(common_prefix(held, prompt), len(prompt) - 1)
                assert stats.cache_n in ((known,) if kind in ("plain", "draft") else (known, known - 1))
            drafted += stats.total.drafted
            reused += stats.cache_n
    assert drafted > 20
    assert reused > 100 or kind == "swa"


def test_a_turn_decodes_its_new_tokens_only(models: Path, talk: Callable[..., Talk]) -> None:
    one = talk(models / "plain.gguf", predict=8)
    first = asked(one, "abc")
    assert (first.answer.stats.cache_n, first.answer.stats.prompt_n) == (0, 4)  # a, b, c and the template's mark
    second = asked(one, "xy")
    # the last token of an answer is sampled, not decoded: it is new too, with its mark and the turn's three
    assert (second.answer.stats.cache_n, second.answer.stats.prompt_n) == (4 + 8 - 1, 1 + 1 + 3)


@pytest.mark.parametrize("kind", ["draft", "mimo", "eagle3"])
def test_the_drafts_memory_stays_too(
    models: Path, pairs: dict[str, Pair], talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The second prompt is not read again, by the draft model or head as little as by the target."""
    pair = Pair(models / "plain.gguf", models / "plain.gguf") if kind == "draft" else pairs[kind]
    one, read = talk(pair.target, model_draft=pair.head, predict=12), []
    decode = C.llama_decode

    def counted(ctx: Any, batch: Any) -> int:
        if ctx != one.engine.target.memory.ctx:
            read.append(batch.n_tokens)
        return int(decode(ctx, batch))

    asked(one, "abcdefgh" * 12)
    monkeypatch.setattr(C, "llama_decode", counted)
    reply = asked(one, "xy")
    assert reply.answer.n_prompt > 96
    assert reply.answer.stats.prompt_n < 8
    assert reply.answer.stats.total.drafted > 5
    assert 0 < sum(read) < 60


def test_interrupted_before_the_first_word_nothing_is_kept(models: Path, talk: Callable[..., Talk]) -> None:
    one = talk(models / "plain.gguf")
    one.engine.abort.set()
    reply = one.ask("abc", Heard(one.engine))
    assert (reply.kept, reply.text, one.conversation.messages) == (False, "", [])
    assert (reply.answer.stats.cache_n, reply.answer.stats.prompt_n) == (0, 0)
    one.engine.abort.clear()
    said = asked(one, "abc", 3)
    assert said.kept
    assert [m["role"] for m in one.conversation.messages] == ["user", "assistant"]
    one.engine.abort.set()
    again = one.regenerate(Heard(one.engine))
    assert not again.kept
    assert again.answer.stats.prompt_n == 0  # what was in memory was not decoded
    assert one.conversation.messages[1]["content"] == said.text  # the answer that was to be made anew is still there


def test_a_full_context_is_refused_with_both_numbers_and_nothing_is_lost(
    models: Path, talk: Callable[..., Talk]
) -> None:
    one = talk(models / "plain.gguf", ctx_size=256, predict=40)
    with pytest.raises(PromptError, match="the context is full: the conversation has 301 tokens, the context 256"):
        asked(one, "a" * 300)
    assert one.conversation.messages == []
    asked(one, "a" * 150)
    with pytest.raises(PromptError, match="has 343 tokens, the context 256"):
        asked(one, "b" * 150)
    assert len(one.conversation.messages) == 2
    one.conversation.clear()
    full = asked(one, "a" * 254)  # with its mark 255 tokens: one more is decoded, and another only sampled
    assert (full.answer.finish_reason, len(full.text)) == ("context", 2)


def test_a_context_shift_drops_the_oldest_turns_and_never_the_system_message(
    models: Path, talk: Callable[..., Talk]
) -> None:
    one = talk(models / "plain.gguf", ctx_size=256, predict=20, context_shift=True, system_prompt="xyz")
    turns = 0
    dropped = []
    for i in range(30):
        reply = asked(one, f"{chr(97 + i % 26)}" * 20)
        turns += 1 - reply.dropped
        dropped += [reply.dropped] * (reply.dropped > 0)
        assert one.conversation.system == "xyz"
        assert len(one.conversation.starts) == turns
        assert reply.answer.finish_reason == "length"  # there was room for the answer
        assert reply.answer.n_prompt <= 256 - 256 // 8
    assert len(dropped) > 2
    assert min(dropped) > 1  # room for a while
    with pytest.raises(PromptError, match="the conversation has 305 tokens, the context 256"):
        asked(one, "b" * 300)
    assert len(one.conversation.starts) == turns  # the dropped ones came back with the refusal


def test_what_this_run_has_no_room_for_is_refused(models: Path, talk: Callable[..., Talk]) -> None:
    one = talk(models / "plain.gguf")
    for change, words in (
        ({"spec_draft_n_max": 9}, "9 is more than the 8 guesses"),
        ({"spec_type": ("draft-simple",)}, "needs a draft model"),
        ({"spec_type": ("nonsense",)}, "unknown speculative type"),
        ({"logit_bias": ("9999+1",)}, "9999"),
        ({"grammar": "root ::= ("}, "grammar"),
    ):
        with pytest.raises(UsageError, match=words):
            one.engine.check(replace(one.settings, **change))


def test_a_model_without_a_template_names_what_to_do(models: Path, talk: Callable[..., Talk]) -> None:
    with pytest.raises(UsageError, match="has no chat template: --chat-template gives one"):
        talk(models / "plain.gguf", chat_template=None)
    no_system = "{% if messages[0].role == 'system' %}{{ raise_exception('no system, please') }}{% endif %}"
    with pytest.raises(UsageError, match="no system, please"):
        talk(models / "plain.gguf", chat_template=no_system, system_prompt="x")


# ---- the messages


def test_messages_are_openais_and_come_back() -> None:
    one = Conversation()
    one.system = "Be [brief]."
    one.ask('Say "é"\n')
    one.answer("é", "a thought")
    again = Conversation.from_json(one.as_json())
    assert again.messages == one.messages
    assert again.messages[2] == {"role": "assistant", "content": "é", "reasoning_content": "a thought"}
    assert Conversation.from_json('[{"role": "user", "content": [{"type": "text", "text": "x"}]}]').question == "x"
    assert Conversation.from_json('{"messages": []}').messages == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("3", "a number where a list of messages should be"),
        ('{"a": 1}', "no messages"),
        ('{"messages": 3}', "a number where"),
        ('[{"role": "user"}]', r"messages\[0\]: content is nothing"),
        ('[{"role": "user", "content": "\\ud800"}]', "surrogate"),
        ('[{"role": "assistant", "content": "x", "tool_calls": [{"id": "x"}]}]', "'tool_calls' cannot be used"),
    ],
)
def test_a_file_that_is_no_conversation_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Conversation.from_json(text)


def test_turns_are_taken_back_reopened_and_dropped_whole() -> None:
    one = Conversation([{"role": "system", "content": "s"}])
    for change in (one.undo, one.reopen):
        with pytest.raises(UsageError):
            change()
    one.ask("a")
    with pytest.raises(UsageError, match="no answer yet"):
        one.ask("b")
    one.answer("A")
    one.ask("b")
    one.answer("B")
    one.reopen()
    assert (one.waits, one.question, len(one.messages)) == (True, "b", 4)
    assert one.drop_oldest()
    assert not one.drop_oldest()
    assert [m["content"] for m in one.messages] == ["s", "b"]
    one.undo()
    assert [m["content"] for m in one.messages] == ["s"]
    one.system = None
    assert one.messages == []


# ---- what is thought


def split(marks: Marks | None, inside: bool, pieces: list[str]) -> tuple[str, str, list[tuple[str, bool]]]:
    got: list[tuple[str, bool]] = []

    def emit(text: str, thought: bool) -> None:
        got.append((text, thought))

    one = Channels(inside, emit) if marks is HARMONY else Thinking(marks, inside, emit)
    for piece in pieces:
        one.feed(piece)
    one.close()
    return one.thought, one.answer, got


THINK = KNOWN[0]
ANALYSIS, FINAL = HARMONY.start, "<|channel|>final<|message|>"
NEXT = "<|start|>assistant"


@pytest.mark.parametrize(
    ("marks", "inside", "text", "thought", "answer"),
    [
        (THINK, False, "<think>\n\nhm\n\nyes \n</think>\n\nSo.\n", "hm\n\nyes", "So.\n"),
        (THINK, True, "\nhm</think>So", "hm", "So"),
        (THINK, False, "  <think>hm", "hm", ""),
        (THINK, False, " So <think>no</think>", "", " So <think>no</think>"),
        (THINK, False, "<thin", "", "<thin"),
        (THINK, True, "a </thin", "a </thin", ""),
        (THINK, True, "</think></think>x", "", "</think>x"),
        (None, False, "<think>x</think>", "", "<think>x</think>"),
        (HARMONY, False, f"{ANALYSIS}hm<|end|>{NEXT}{FINAL}So", "hm", "So"),
        (HARMONY, False, f"{ANALYSIS}hm{NEXT}{FINAL}So", "hm", "So"),
        (HARMONY, False, f"{FINAL}So", "", "So"),
        (HARMONY, True, f" hm{NEXT}{FINAL}So\n", "hm", "So\n"),
        (HARMONY, False, "So <thin", "", "So <thin"),
        (HARMONY, False, f"<|channel|>commentary<|message|>Checking.<|end|>{NEXT}{FINAL}Hi.", "", "Checking.\n\nHi."),
        (HARMONY, False, "<|channel|>final <|constrain|>json<|message|>{}<|return|>", "", "{}"),
        (HARMONY, False, f"{ANALYSIS}hm<|end|>{NEXT}<|channel|>final <|constrain|>json<|message|>{{}}", "hm", "{}"),
        (HARMONY, False, f"{ANALYSIS}a {NEXT}<|channel|>commentary<|message|>b{ANALYSIS}c{FINAL}d", "a\n\nc", "b\n\nd"),
        (HARMONY, False, f"{NEXT} to=functions.f<|channel|>commentary json<|message|>{{}}<|call|>", "", "{}"),
        (HARMONY, False, f"{ANALYSIS}hm{NEXT}<|channel|>fin", "hm", ""),
        (HARMONY, False, f"{ANALYSIS}hm <|chan", "hm <|chan", ""),
        (HARMONY, False, f"A <|channel|> is\nshort{NEXT}<|message|>x", "", "A <|channel|> is\nshort\n\nx"),
    ],
)
def test_what_is_thought_is_told_from_the_answer_however_it_is_cut(
    marks: Marks | None, inside: bool, text: str, thought: str, answer: str
) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        got = split(marks, inside, pieces)
        assert got[:2] == (thought, answer)
        assert "".join(piece for piece, is_thought in got[2] if is_thought) == thought
        assert "".join(piece for piece, is_thought in got[2] if not is_thought) == answer


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "\n", " ", "a", "</"]), max_size=12), st.booleans()
)
def test_nothing_but_marks_and_blank_space_gets_lost(parts: list[str], inside: bool) -> None:
    text = "".join(parts)
    whole, letters = split(THINK, inside, [text]), split(THINK, inside, list(text))
    assert whole[:2] == letters[:2]
    kept = "".join((whole[0] + whole[1]).split())
    start = "" if inside else "<think>" if text.lstrip().startswith("<think>") else None
    bare = "".join(text.split())
    if start is None:
        assert (whole[0], whole[1]) == ("", text)
    else:
        assert kept in (bare.removeprefix(start), bare.removeprefix(start).replace("</think>", "", 1))


@pytest.mark.parametrize("at", range(8))
def test_a_piece_is_given_once_though_its_listener_was_interrupted(at: int) -> None:
    got: list[str] = []

    def emit(text: str, thought: bool) -> None:
        got.append(text)
        if len(got) == at + 1:
            raise Interrupted("interrupted")

    one = Thinking(THINK, True, emit)
    for piece in ("a", "b ", "c</th", "ink>", "\n", "d", "e <", "f"):
        with suppress(Interrupted):
            one.feed(piece)
    with suppress(Interrupted):
        one.close()
    assert (one.thought, one.answer, "".join(got)) == ("ab c", "de <f", "ab cde <f")


def test_a_template_names_the_marks_of_its_model() -> None:
    for marks in KNOWN:
        assert marks_of(f"{{{{ '{marks.start.strip()}' }}}}") == marks
    assert marks_of("{{ messages }}") is None


def test_marks_that_are_control_tokens_are_read_and_not_printed(
    models: Path, tmp_path: Path, talk: Callable[..., Talk]
) -> None:
    """[THINK] and [/THINK] as control tokens: c, [THINK], d, e, [/THINK], f, ..."""
    start, end = len(tiny.TEXTS), len(tiny.TEXTS) + 1
    a, texts = tiny.A, [*tiny.TEXTS, b"[THINK]", b"[/THINK]"]
    kinds = [*tiny.KINDS, tiny.T.CONTROL, tiny.T.CONTROL]
    follow = {tiny.byte(ord(".")): start, start: a + 3, a + 4: end, end: a + 5}
    model = tiny.clock(tmp_path / "thinks.gguf", follow, texts=texts, kinds=kinds)
    template = TEMPLATE + "{# [THINK] #}"
    one = talk(model, chat_template=template, predict=8)
    reply = asked(one, "abc")
    assert (reply.thought, reply.text) == ("de", "fghi")
    assert one.conversation.messages[-1]["reasoning_content"] == "de"
    reasons = "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{{ m.content }}{% endfor %}."
    kept = talk(model, chat_template=reasons + "{# [THINK] #}", predict=8)
    asked(kept, "abc")
    assert asked(kept, "x").answer.n_prompt == len("abcdedefghix.")  # both names are there
