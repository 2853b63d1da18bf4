"""A model's own chat template, rendered in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence as Seq
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spec_cli.chat.messages import Message
from spec_cli.chat.thinking import marks_of
from spec_cli.errors import SpecError, UsageError

MOST_TEXT = 1 << 26  # bytes a template may make; a runaway loop must end
PLACE, THOUGHT = "\U000f5bec", "\U000f5bed"  # nobody uses them: where a content, a thought comes to stand
FIREFUNCTION = "functools["  # of all templates, this one cannot do without `functions`

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


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:  # fmt: skip
    """transformers' filter: Jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


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
        self._known |= {"functions": ""} if FIREFUNCTION in source else {}
        self._source = source
        try:
            self._template = env.from_string(source)
        except Exception as error:  # a deep one breaks the compiler: jinja2's own, or Python's
            words = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the model's chat template cannot be read: {words} (--raw does without it)") from None

    def render(
        self, messages: Seq[Message], more: Mapping[str, Any] | None = None, *, continued: bool = False
    ) -> str:  # fmt: skip
        """The conversation as text that ends where the assistant's answer begins. more: further values.

        continued: the last message is the assistant's, and the text ends right behind its content, or
        behind its thought where there is nothing else (common/chat.cpp, continue_final_message).
        """
        values = dict(more or {})
        return self._continued(messages, values) if continued else self._text(messages, values)

    def _continued(self, messages: Seq[Message], values: Mapping[str, Any]) -> str:
        *before, last = messages
        content, thought = last["content"], last.get("reasoning_content", "")
        marks = marks_of(self._source)
        if not (marks or "reasoning" in self._source):
            return self._text(before, values) + content
        # A generation prompt may begin a thought; what the template makes of an answer does not.
        off = {} if thought else {"enable_thinking": False}
        whole = {**last, "content": PLACE, **({"reasoning_content": THOUGHT} if thought else {})}
        try:
            answered = self._text([*before, whole], {**off, **values, "add_generation_prompt": False})
        except UsageError:  # it takes no conversation that ends so
            answered = ""
        text, found, _ = answered.rpartition(PLACE)
        head, kept, between = text.rpartition(THOUGHT)
        if found and kept:
            return head + thought + (between + content if content else "")
        if found and not thought:
            return text + content
        text = self._text(before, {**off, **values})
        if marks:
            opened = text.rstrip().endswith(marks.start.rstrip())
            text += "" if opened or not thought else marks.start
            text += thought + (marks.end if (content or not thought) and (opened or thought) else "")
        return text + content

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether it prints contents only as lists of parts (llama.cpp's requires_typed_content)."""
        said = ({"role": "user", "content": content} for content in (PLACE, [{"type": "text", "text": PLACE}]))
        return [self._prints([message]) for message in said] == [False, True]

    @cached_property
    def _knows_developer(self) -> bool:
        """Whether that is a role of its own, as in gpt-oss; elsewhere it is the system's."""
        said = [{"role": "developer", "content": PLACE}, {"role": "user", "content": "?"}]
        return "developer" in self._source and self._prints(said)

    def _prints(self, messages: Seq[dict[str, Any]]) -> bool:
        try:
            return PLACE in self._filled(messages, {})
        except UsageError:
            return False

    def _text(self, messages: Seq[Message], values: Mapping[str, Any]) -> str:
        return self._filled([self._adapted(m) for m in messages], values)

    def _adapted(self, message: Message) -> dict[str, Any]:
        """A message as this template has it: its word for thoughts (gpt-oss says thinking), its roles, its parts."""
        adapted: dict[str, Any] = dict(message)
        if "reasoning_content" in message:
            adapted["thinking"] = message["reasoning_content"]
        if message["role"] == "developer" and not self._knows_developer:
            adapted["role"] = "system"
        if self._wants_parts:
            adapted["content"] = [{"type": "text", "text": message["content"]}]
        return adapted

    def _now(self) -> dict[str, str]:
        """What llama.cpp tells templates of the time (common_chat_extra_context)."""
        now = datetime.now()
        return {"date_string": now.strftime("%d %b %Y"), "datetime": now.strftime("%b %d %Y")}

    def _filled(self, messages: Seq[dict[str, Any]], values: Mapping[str, Any]) -> str:
        parts, size = [], 0
        try:
            for part in self._template.generate(**{**self._known, **self._now(), **values, "messages": messages}):
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
