"""gpt-oss: answers on channels, of which neither the answer nor the history keeps a tag (ggml-org/llama.cpp#15091)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tiny
from hypothesis import given, settings, strategies as st
from test_talk import asked, split, talk  # noqa: F401  (a fixture)

from spec_cli.chat.channels import TAGS
from spec_cli.chat.talk import Talk
from spec_cli.chat.thinking import HARMONY

KINDS = {**dict.fromkeys(TAGS, tiny.T.CONTROL), "<|constrain|>": tiny.T.CONTROL}
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
    "{% if '<|' in m.content %}{{ raise_exception('tags in the history') }}{% endif %}{{ m.content }}{% endif %}"
    "{% endfor %}{{ next }}{# <|channel|>analysis<|message|> #}"
)
parts = st.lists(
    st.sampled_from([*TAGS, "<|constrain|>", "analysis", "final", "commentary", " json", "a", "b ", "\n", "<|", "|>"]),
    max_size=14,
)


@settings(max_examples=100, deadline=None)
@given(parts, st.booleans(), st.lists(st.integers(1, 9), min_size=1))
def test_an_answer_is_split_alike_however_it_is_cut(words: list[str], inside: bool, sizes: Sequence[int]) -> None:
    text = "".join(words)
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    whole, cut = split(HARMONY, inside, [text]), split(HARMONY, inside, pieces)
    assert whole[:2] == cut[:2]
    for thought, given_whole in ((True, cut[0]), (False, cut[1])):
        assert "".join(piece for piece, is_thought in cut[2] if is_thought == thought) == given_whole


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["analysis", "commentary", "final json"]), st.sampled_from(["a", "b c", "d\ne"]))
    )
)
def test_no_tag_of_a_well_formed_answer_is_left(messages: list[tuple[str, str]]) -> None:
    text = "<|start|>assistant".join(f"<|channel|>{name}<|message|>{said}<|end|>" for name, said in messages)
    thought, answer, _ = split(HARMONY, False, list(text))
    assert thought == "\n\n".join(said for name, said in messages if name == "analysis")
    assert answer == "\n\n".join(said for name, said in messages if name != "analysis")


def scripted(path: Path, says: Sequence[str]) -> Path:
    """A model that says these texts behind a z, a token each, so that each is another one, and then ends."""
    ends = ["<|return|>", "<|call|>"]  # with both, llama.cpp knows that <|end|> ends no answer
    texts, kinds = [*tiny.TEXTS, *(end.encode() for end in ends)], [*tiny.KINDS, tiny.T.CONTROL, tiny.T.CONTROL]
    follow = dict[int, int]()
    last = tiny.A + 25  # z
    for said in says:
        texts.append(said.encode())
        kinds.append(KINDS.get(said, tiny.T.NORMAL))
        follow[last] = last = len(texts) - 1
    follow[last] = len(tiny.TEXTS)
    return tiny.clock(path, follow, texts=texts, kinds=kinds)


PREAMBLE = "<|channel|>commentary<|message|>Checking."
THOUGHT = "<|channel|>analysis<|message|>hm"
NEXT_FINAL = "<|start|>assistant<|channel|>final<|message|>Hi."
FINAL = ["<|channel|>", "final", "<|message|>", "Hi."]
JSON = ["<|channel|>", "final ", "<|constrain|>", "json", "<|message|>", "{}"]


@pytest.mark.parametrize(
    ("says", "thought", "answer"),
    [
        ([PREAMBLE, NEXT_FINAL], "", "Checking.\n\nHi."),
        (FINAL, "", "Hi."),
        ([THOUGHT, NEXT_FINAL], "hm", "Hi."),
        ([THOUGHT, "<|end|>", "<|start|>", "assistant", *FINAL], "hm", "Hi."),
        (JSON, "", "{}"),
        ([THOUGHT, *JSON], "hm", "{}"),
        ([THOUGHT, f"<|start|>assistant{PREAMBLE}", NEXT_FINAL], "hm", "Checking.\n\nHi."),
    ],
)
def test_a_conversation_goes_on_whatever_channels_were_used(
    talk: Callable[..., Talk],  # noqa: F811
    tmp_path: Path,
    says: list[str],
    thought: str,
    answer: str,
) -> None:
    """Two turns: the template refuses tags in the history."""
    model = scripted(tmp_path / "oss.gguf", says)
    one = talk(model, chat_template=TEMPLATE, predict=40)
    for _ in range(2):
        reply = asked(one, "z")
        assert (reply.thought, reply.text) == (thought, answer)
    assert [m["content"] for m in one.conversation.messages] == ["z", answer, "z", answer]
