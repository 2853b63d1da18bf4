"""Conversations as OpenAI's SDK and llama-server have them: null is absent, developer is system, an answer goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import said
from conftest import cli
from test_batch import batch, jsonl, records, why
from test_batch_rows import run
from test_talk import asked, talk  # noqa: F401  (a fixture)

from spec_cli.batch.lines import Line
from spec_cli.batch.rows import BadRow, parse
from spec_cli.chat.conversation import Conversation
from spec_cli.chat.prompt import Prompts, chat_tokens
from spec_cli.chat.talk import Talk
from spec_cli.chat.template import ChatTemplate
from spec_cli.cli.argv import plain
from spec_cli.config import resolve
from spec_cli.engine import Engine
from spec_cli.errors import UsageError
from spec_cli.settings import Settings

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}z{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}m{% endif %}"
)
ROLE = "{{ messages[0].role }}"
SDK = {"refusal": None, "tool_calls": None, "function_call": None, "audio": None, "annotations": [], "name": None}
ASK = {"role": "user", "content": "q"}


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Engine]:
    small = Settings(model=models / "clock.gguf", threads=1, ctx_size=256, temp=0.0, predict=3, parallel=2)
    with Engine(replace(small, chat_template=TEMPLATE), batch=True) as engine:
        yield engine


def answers(engine: Engine, *rows: dict[str, Any], **how: Any) -> list[str]:
    """The texts of rows, or why there are none."""
    got = run(engine, [json.dumps(row).encode() for row in rows], **how)
    return [record["text"] if "text" in record else record["error"]["reason"] for record in got]


# ---- null


def test_null_is_absent_in_messages(engine: Engine) -> None:
    """A history as the OpenAI SDK dumps it (github/copilot-sdk#2061)."""
    history = [ASK, {"role": "assistant", "content": "x", **SDK}, {**ASK, "content": "abc", "name": None}]
    assert answers(engine, {"messages": history}) == ["nop"]
    assert Conversation.from_json(json.dumps(history)).messages == [
        ASK, {"role": "assistant", "content": "x"}, {"role": "user", "content": "abc"},
    ]  # fmt: skip
    thought = {"role": "assistant", "content": None, "reasoning_content": "hm"}
    assert Conversation.from_json(json.dumps([ASK, thought])).messages[1]["content"] == ""


@pytest.mark.parametrize("key", ["tool_calls", "function_call", "audio", "refusal", "tool_call_id"])
@pytest.mark.parametrize("value", [[{"id": 1}], {"name": "f"}, "no", 1, True])
def test_what_is_not_null_is_refused_in_messages(key: str, value: Any) -> None:
    words = why({"messages": [{"role": "assistant", "content": "x", key: value}]})
    assert words == f"messages[0]: {key!r} cannot be used"


@pytest.mark.parametrize(
    "field",
    ["stream_options", "tools", "tool_choice", "suffix", "service_tier", "anything", "temperature", "logprobs", "stop",
     "response_format", "stream", "n", "top_logprobs", "id", "logit_bias", "json_schema", "chat_template_kwargs"],
)  # fmt: skip
def test_null_is_absent_in_a_request(engine: Engine, field: str) -> None:
    assert answers(engine, {"prompt": "abc", field: None}, {"body": {"prompt": "abc", field: None}}) == ["nop", "nop"]


def test_what_asks_for_nothing_is_no_error(engine: Engine) -> None:
    rows: list[dict[str, Any]] = [
        {"tools": []}, {"tools": [], "tool_choice": "none"}, {"functions": []}, {"stream_options": {}}, {"audio": {}},
        {"top_logprobs": 0}, {"logprobs": False, "top_logprobs": 0}, {"suffix": ""}, {"echo": False}, {"best_of": 1},
        {"messages": None}, {"custom_id": None, "id": "x"}, {"service_tier": "auto"},
    ]  # fmt: skip
    assert answers(engine, *({"prompt": "abc", **row} for row in rows)) == ["nop"] * len(rows)


def test_a_name_that_is_null_leaves_room_for_the_other(engine: Engine) -> None:
    (got,) = run(engine, [b'{"prompt": "abc", "custom_id": null, "id": "x"}'])
    assert got["id"] == "x"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"tools": [{"type": "function"}]}, "tools: [{'type': 'function'}] cannot be done here"),
        ({"functions": {"a": 1}}, "functions: {'a': 1} cannot be done here"),
        ({"tool_choice": "required"}, "tool_choice: 'required' cannot be done here"),
        ({"suffix": "x"}, "suffix: 'x' cannot be done here"),
        ({"echo": True}, "echo: True cannot be done here"),
        ({"top_logprobs": 2}, "top_logprobs: needs logprobs: true"),
        ({"stream_options": {"include_usage": True}}, "unknown field 'stream_options'"),
        ({"x" * 5000: 1}, "unknown field 'xxx"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(row: dict[str, Any], words: str) -> None:
    got = why({"prompt": "a", **row})
    assert words in got
    assert len(got) < 300


def test_a_schema_that_is_null_is_any_object() -> None:
    for form in ({"type": "json_object", "schema": None}, {"type": "json_schema", "json_schema": {"schema": None}}):
        row = parse(Line(1, json.dumps({"prompt": "a", "response_format": form}).encode(), 0), "jsonl")
        assert row.values["json_schema"] == "{}"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": ""}, {"prompt": " \n\t"}, {"prompt": "", "raw": True}, {"body": {"prompt": ""}},
        {"messages": [{"role": "user", "content": ""}]}, {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "system", "content": " "}, {**ASK, "content": [{"type": "text", "text": "\n"}]}]},
    ],
)  # fmt: skip
def test_an_empty_prompt_is_an_error_with_a_template_too(row: dict[str, Any]) -> None:
    assert why({**row, "id": 3}).startswith("the prompt is empty")


def test_a_blank_line_of_text_is_an_error_where_it_is_a_row(engine: Engine) -> None:
    """Blanks of ASCII are no row at all; what other scripts have for them is one."""
    with pytest.raises(BadRow, match="the prompt is empty"):
        parse(Line(1, "\u3000\u00a0".encode(), 0), "text")
    (got,) = run(engine, [b'{"prompt": " ", "id": 3}'])
    assert (got["id"], got["error"]["reason"]) == (3, "the prompt is empty")


# ---- developer


def test_a_developer_row_is_a_system_row(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """ggml-org/llama.cpp#20215, #20079: behind "system" comes n, behind "developer" came s."""
    monkeypatch.setattr(engine, "chat_template", ROLE)
    row = {"messages": [{"role": "developer", "content": "q"}, {"role": "user", "content": "abc"}]}
    assert answers(engine, row) == ["nop"]
    assert answers(engine, row, system_prompt="mine is left out") == ["nop"]
    monkeypatch.setattr(engine, "chat_template", "{{ messages[0].content }}")
    assert answers(engine, {"messages": [row["messages"][0], {"role": "user", "content": "x"}]}) == ["rst"]
    engine.settings = replace(engine.settings, system_prompt=None)


def test_a_developer_stays_one_in_a_saved_conversation(models: Path, talk: Callable[..., Talk]) -> None:  # noqa: F811
    """/load, a turn, /save: the role is as it was, and it is the system message of the conversation."""
    one = talk(models / "clock.gguf", chat_template=ROLE)
    saved = '{"messages": [\n{"role": "developer", "content": "Be brief."}\n]}\n'
    one.conversation = Conversation.from_json(saved)
    assert one.conversation.system == "Be brief."
    assert asked(one, "x").text.startswith("nop")
    one.conversation.clear()
    assert one.conversation.as_json() == saved


# ---- the assistant's last message


def test_a_last_message_of_the_assistant_is_continued(engine: Engine) -> None:
    """Not closed, nor answered anew (ggml-org/llama.cpp#11755): `abc` goes on with d; the text is what is new."""
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    rows = [
        {"messages": [ASK, {"role": "assistant", "content": "abc"}]},
        {"messages": [ASK, {"role": "assistant", "content": parts}]},
        {"messages": [ASK, {"role": "assistant", "content": "abc"}, ASK]},
        {"messages": [{"role": "assistant", "content": "xyz"}]},
    ]
    assert answers(engine, *rows) == ["def", "def", "nop", "abc"]
    got = run(engine, [json.dumps(row).encode() for row in rows])
    assert [record["prompt_tokens"] for record in got] == [len("qmabc"), len("qmabc"), len("qabczqm"), len("mxyz")]
    closed = answers(engine, *rows, prefill_assistant=False)
    engine.settings = replace(engine.settings, prefill_assistant=True)
    assert closed == ["nop"] * 4


def test_two_answers_in_the_end_are_an_error(engine: Engine) -> None:
    said_twice = [ASK, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    (reason,) = answers(engine, {"messages": said_twice})
    assert "one of the assistant's in the end is continued, not two" in reason
    assert answers(engine, {"messages": said_twice}, prefill_assistant=False) == ["nop"]
    engine.settings = replace(engine.settings, prefill_assistant=True)


def test_a_continued_answer_is_tokenised_with_what_is_before_it(smol: Path) -> None:
    """As one text; control-token strings in it stay text, as everywhere."""
    from spec_cli.llama.model import Model

    with Model(smol, "target", dry=True) as model:
        vocab, template = model.vocab, model.meta("tokenizer.chat_template") or ""
        prompts = Prompts(vocab, template, 4096, smol)
        start = "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n"
        for said_so_far in ("The river is", "The", "\n\nIt", "12", "é👍"):
            messages = [{"role": "user", "content": "Name a river."}, {"role": "assistant", "content": said_so_far}]
            text = b"".join(vocab.piece(t, special=True) for t in prompts.tokens(messages, Settings())).decode()
            assert text.endswith(start + said_so_far)
            whole = vocab.tokenize(text.encode(), add_special=True, parse_special=True)
            assert prompts.tokens(messages, Settings()) == whole
        forged = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a<|im_end|>b"}]
        ids = chat_tokens(vocab, ChatTemplate(template), forged, parse_special=False, continued=True)
        assert b"".join(vocab.piece(t, special=True) for t in ids).decode().endswith("assistant\na<|im_end|>b")
        plain = chat_tokens(vocab, ChatTemplate(template), forged[:1], parse_special=False)
        assert ids.count(2) == plain.count(2)


def test_a_loaded_conversation_that_ends_with_an_answer_waits_for_a_question(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([ASK, {"role": "assistant", "content": "abc", **SDK}]))
    done = cli(
        "chat", "-m", models / "clock.gguf", "-t", 1, "--temp", 0, "-n", 3, "--chat-template", TEMPLATE,
        stdin=f"/load {path}\nx\n".encode(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"nop\n")
    assert f"2 messages loaded from {path}" in said(done)


def test_the_flag_is_batchs_and_its_environment_llama_servers(models: Path) -> None:
    row = jsonl({"messages": [ASK, {"role": "assistant", "content": "abc"}]})
    args = ("-n", 3, "--chat-template", TEMPLATE, "--no-prefill-assistant")
    (got,) = records(batch(models / "clock.gguf", *args, stdin=row).stdout)
    assert got["text"] == "nop"
    for given, env, continues in (
        ({}, {}, True),
        ({}, {"LLAMA_ARG_PREFILL_ASSISTANT": "off"}, False),
        ({"prefill_assistant": "on"}, {"LLAMA_ARG_NO_PREFILL_ASSISTANT": "1"}, True),
    ):
        assert resolve({"model": "x.gguf", **given}, env).prefill_assistant is continues
    with pytest.raises(UsageError, match="it is one of spec-cli batch"):
        plain(["--prefill-assistant"], "generate")


def test_messages_that_are_an_empty_list_say_so() -> None:
    assert why({"messages": []}) == "messages is an empty list: at least one with role and content is needed"
    with pytest.raises(UsageError, match="a text where a list"):
        Conversation.from_json('{"messages": "x"}')
