"""A model's own chat template, rendered in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence as Seq
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spec_cli.chat.messages import Message
from spec_cli.errors import SpecError, UsageError

MOST_TEXT = 1 << 26  # bytes a template may make; a runaway loop must end

# llama.cpp's built-in template of this name (common/chat.cpp)
NAMED = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
}


class _GenerationTag(Extension):
    """`{% generation %}` marks training masks; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Refusal(Exception):
    """`raise_exception` in a template."""


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _named_twice(message: Message) -> dict[str, str]:
    """What was thought, under both names that templates have for it (gpt-oss says thinking)."""
    thought = message.get("reasoning_content")
    return {**message, **({} if thought is None else {"thinking": thought})}


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


class ChatTemplate:
    """A Jinja chat template with the special tokens it may print.

    Raises UsageError, in the template's own words, when it cannot be read or refuses a conversation.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        source = NAMED.get(source, source)
        env = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        env.filters["tojson"] = _tojson
        env.globals["raise_exception"] = _refuse
        env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._known = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True, "enable_thinking": True}
        try:
            self._template = env.from_string(source)
        except jinja2.TemplateError as error:
            raise UsageError(f"the model's chat template cannot be read: {error} (--raw does without it)") from None

    def render(self, messages: Seq[Message], more: Mapping[str, Any] | None = None) -> str:
        """The conversation as text that ends where the assistant's answer begins. more: further values."""
        parts, size = [], 0
        known = {**self._known, **(more or {})}
        try:
            for part in self._template.generate(**{**known, "messages": [_named_twice(m) for m in messages]}):
                parts.append(part)
                size += len(part)
                if size > MOST_TEXT:
                    raise UsageError(f"the model's chat template does not end (more than {MOST_TEXT} characters)")
            text = "".join(parts)
            text.encode()
        except SpecError:
            raise
        except Exception as error:  # whatever a template may do
            words = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the model's chat template says: {words}") from None
        return text
