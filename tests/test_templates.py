"""What templates of public models find there: dates, filters, roles, and an answer that is to be continued."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from test_talk import NEXT

from spec_cli.chat.messages import Message
from spec_cli.chat.template import ChatTemplate
from spec_cli.chat.thinking import HARMONY
from spec_cli.errors import UsageError

ASK: Message = {"role": "user", "content": "q"}


def test_a_template_is_told_todays_date_as_llama_cpp_tells_it() -> None:
    """Llama 3.1 and 3.3 believe that it is 26 July 2024 otherwise (sgl-project/sglang#3296)."""
    got = ChatTemplate("{{ date_string }}|{{ datetime }}|{{ strftime_now('%d %B %Y') }}").render([ASK])
    assert re.fullmatch(r"\d\d [A-Z][a-z]{2} \d{4}\|[A-Z][a-z]{2} \d\d \d{4}\|\d\d [A-Z][a-z]+ \d{4}", got)
    assert datetime.strptime(got.split("|")[0], "%d %b %Y").year == datetime.now().year
    llama = "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}"
    assert ChatTemplate(llama).render([ASK]) == got.split("|")[0]
    assert ChatTemplate(llama).render([ASK], {"date_string": "1 Jan 1970"}) == "1 Jan 1970"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("tojson", '{"b": ["é<"], "a": 1}'),
        ("tojson(separators=(',', ':'))", '{"b":["é<"],"a":1}'),
        ("tojson(sort_keys=True)", '{"a": 1, "b": ["é<"]}'),
        ("tojson(ensure_ascii=True)", '{"b": ["\\u00e9<"], "a": 1}'),
        ("tojson(True)", '{"b": ["\\u00e9<"], "a": 1}'),
        ("tojson(indent=1)", '{\n "b": [\n  "é<"\n ],\n "a": 1\n}'),
        ("tojson(indent=None, separators=(', ', ':'), sort_keys=false)", '{"b":["é<"], "a":1}'),
    ],
)
def test_tojson_is_transformers_filter(call: str, text: str) -> None:
    assert ChatTemplate("{{ {'b': ['é<'], 'a': 1} | " + call + " }}").render([ASK]) == text


def test_what_nobody_gave_is_undefined() -> None:
    """Tool templates loop over tools without asking; firefunction adds its functions to a text."""
    source = "{% for t in tools %}t{% endfor %}{% for d in documents %}d{% endfor %}"
    assert ChatTemplate(source + "{{ tools is defined }}").render([ASK]) == "False"
    assert ChatTemplate("{{ '<' + functions + datetime[:0] + '>' }}{# functools[ #}").render([ASK]) == "<>"


def test_a_developer_is_the_system_where_the_template_knows_no_other() -> None:
    """ggml-org/llama.cpp#20215: others ignore or refuse what it says."""
    said: list[Message] = [{"role": "developer", "content": "d"}, ASK]
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert ChatTemplate(plain).render(said) == "[system]d[user]q"
    knows = "{% for m in messages %}{% if m.role == 'developer' %}D{% endif %}{{ m.content }}{% endfor %}"
    assert ChatTemplate(knows).render(said) == "Ddq"
    strict = (
        "{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('role') }}{% endif %}"
        "{{ m.content }}{% endfor %}{# of a developer #}"
    )
    assert ChatTemplate(strict).render(said) == "dq"
    deaf = "{% for m in messages %}{% if m.role != 'developer' %}{{ m.content }}{% endif %}{% endfor %}"
    assert ChatTemplate(deaf).render(said) == "dq"
    assert said[0]["role"] == "developer"


def test_a_template_that_reads_parts_gets_parts() -> None:
    """SmolVLM's reads a text letter by letter, and prints nothing of it."""
    source = (
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}."
    )
    assert ChatTemplate(source + "{% endfor %}").render([ASK, {"role": "assistant", "content": "ab"}]) == "q.ab."
    one_turn = "{% if messages | length > 1 %}{{ raise_exception('no') }}{% endif %}"
    assert ChatTemplate(one_turn + source + "{% endfor %}").render([ASK]) == "q."
    assert ChatTemplate("{{ messages[0].content is string }}{{ messages[0].content }}").render([ASK]) == "Trueq"


# ---- an answer that is continued (ggml-org/llama.cpp#11755, #13608)

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
QWEN3 = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' and (m.reasoning_content or loop.last) %}"
    "<think>\n{{ m.reasoning_content | default('') }}\n</think>\n\n{% endif %}{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)
R1 = (
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}<A>"
    "{{ m.content.split('</think>')[-1] }}<E>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<A><think>\n{% endif %}"
)
OPENS = (
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<A><think>\n{% endif %}"
)
STRICT = "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}" + OPENS
GPT_OSS = (
    "{% for m in messages %}{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>{% else %}"
    "{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
NAMELESS = PLAIN.replace("<assistant>{%", "<assistant><my_thoughts>{%") + "{# reasoning #}"


@pytest.mark.parametrize(
    ("template", "content", "thought", "text"),
    [
        (PLAIN, "The river is", "", "<user>q</s><assistant>The river is"),
        (PLAIN, " is ", "hm", "<user>q</s><assistant> is "),
        (PLAIN, "", "", "<user>q</s><assistant>"),
        (QWEN3, "So ", "", "<|user|>q<|end|><|assistant|><think>\n\n</think>\n\nSo "),
        (QWEN3, "So", "hm", "<|user|>q<|end|><|assistant|><think>\nhm\n</think>\n\nSo"),
        (QWEN3, "", "hm", "<|user|>q<|end|><|assistant|><think>\nhm"),
        (R1, "So", "", "<U>q<A>So"),
        (R1, "So", "hm", "<U>q<A><think>\nhm</think>So"),
        (R1, "", "hm", "<U>q<A><think>\nhm"),
        (OPENS, "So", "", "<U>q<A><think>\n</think>So"),
        (STRICT, "So", "hm", "<U>q<A><think>\nhm</think>So"),
        (GPT_OSS, "So", "", f"<|start|>user<|message|>q<|end|>{NEXT}<|channel|>final<|message|>So"),
        (GPT_OSS, "So", "hm", f"<|start|>user<|message|>q<|end|>{NEXT}{HARMONY.start}hm<|end|>{NEXT}"
         "<|channel|>final<|message|>So"),
        (GPT_OSS, "", "hm", f"<|start|>user<|message|>q<|end|>{NEXT}{HARMONY.start}hm"),
        (NAMELESS, "So", "", "<user>q</s><assistant>So"),
    ],
)  # fmt: skip
def test_an_answer_is_continued_right_behind_its_content(template: str, content: str, thought: str, text: str) -> None:
    """Never amid a thought, where the content is the answer's; behind the thought, where there is nothing else."""
    last: Message = {"role": "assistant", "content": content, **({"reasoning_content": thought} if thought else {})}
    assert ChatTemplate(template).render([ASK, last], continued=True) == text


def test_a_refusal_of_the_question_is_still_told() -> None:
    with pytest.raises(UsageError, match="sorry"):
        ChatTemplate("{{ raise_exception('sorry') }}{# <think> #}").render(
            [ASK, {"role": "assistant", "content": "x"}], continued=True
        )
