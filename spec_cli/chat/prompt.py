"""Prompts to token ids: control tokens where they belong, and nowhere else."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence as Seq
from functools import cached_property
from pathlib import Path
from typing import Any

from spec_cli.chat.messages import SYSTEM, Message
from spec_cli.chat.template import ChatTemplate
from spec_cli.errors import PromptError, UsageError
from spec_cli.llama.vocab import Vocab
from spec_cli.settings import Settings
from spec_cli.tokens import tokens


class Prompts:
    """Texts and conversations as a model's prompts. template: its chat template, None where it has none.

    Raises UsageError for what the template refuses or is missing for, PromptError for what can't fit `n_ctx`.
    """

    def __init__(
        self, vocab: Vocab, template: str | None, n_ctx: int, model: Path | None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self._vocab, self._n_ctx, self._model, self._say = vocab, n_ctx, model, say
        self._source = template

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate(self._source or "", self._vocab.text(self._vocab.bos), self._vocab.text(self._vocab.eos))

    def check(self, settings: Settings) -> None:
        """Raises UsageError for a template, or values for it, that no prompt could be made with."""
        if self._source and not settings.raw:
            self._template  # noqa: B018
        template_values(settings)

    def tokens(self, content: str | Seq[Message], settings: Settings) -> array[int]:
        """The ids of a text to answer (with `raw` or without a template: to continue), or of a conversation."""
        vocab, system = self._vocab, settings.system_prompt
        texts = [content] if isinstance(content, str) else _texts(content)
        n_bytes = sum(len(text.encode()) for text in texts)
        if n_bytes > 16 * self._n_ctx and n_bytes > vocab.longest * self._n_ctx:  # tokenising it would take minutes
            most = f"{self._n_ctx} tokens of context hold (-c/--ctx-size)"
            raise PromptError(f"the prompt has {n_bytes} bytes, more than {most}")
        if settings.raw or not self._source:
            no_template = f"{self._model} has no chat template (--chat-template gives one)"
            why = "raw leaves the chat template out" if settings.raw else no_template
            if not isinstance(content, str):
                raise UsageError(f"messages: {why}")
            if system is not None:
                raise UsageError(f"{settings.origins.get('system_prompt', 'system_prompt')}: {why}")
            if not settings.raw:
                how = "--chat-template gives one, --raw says it is meant"
                self._say(f"{self._model} has no chat template: the prompt is continued as plain text ({how})")
            return plain_tokens(vocab, content)
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
        if system is not None and messages[0]["role"] not in SYSTEM:
            messages.insert(0, {"role": "system", "content": system})
        continued = settings.prefill_assistant and messages[-1]["role"] == "assistant"
        if continued and [m["role"] for m in messages[-2:]].count("assistant") > 1:
            raise UsageError("messages: one of the assistant's in the end is continued, not two (--prefill-assistant)")
        return chat_tokens(
            vocab, self._template, messages, parse_special=settings.parse_special, values=template_values(settings),
            continued=continued,
        )  # fmt: skip


def template_values(settings: Settings) -> dict[str, Any]:
    """What the settings tell a template. Raises UsageError for what is no JSON object."""
    values: dict[str, Any] = {} if settings.reasoning == "auto" else {"enable_thinking": settings.reasoning == "on"}
    if settings.reasoning_effort not in (None, "default"):
        values["reasoning_effort"] = settings.reasoning_effort
    if settings.chat_template_kwargs is not None:
        where = settings.origins.get("chat_template_kwargs", "--chat-template-kwargs")
        try:
            more = json.loads(settings.chat_template_kwargs)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where}: not JSON: {error}") from None
        if not isinstance(more, dict):
            raise UsageError(f"{where}: {settings.chat_template_kwargs} is not a JSON object")
        values |= more
    return values


def plain_tokens(vocab: Vocab, text: str) -> array[int]:
    """A text to continue: control-token strings are control tokens; a doubled BOS is dropped."""
    return _one_bos(vocab, vocab.tokenize(text.encode(), add_special=True, parse_special=True))


def chat_tokens(
    vocab: Vocab, template: ChatTemplate, messages: Seq[Message], *, parse_special: bool,
    values: Mapping[str, Any] | None = None, continued: bool = False,
) -> array[int]:  # fmt: skip
    """A rendered conversation. Control-token strings in the messages stay text unless `parse_special`.

    continued: see `ChatTemplate.render`.

    The text is tokenised at once whenever no message holds such a string: piecewise tokenising
    gives other tokens. Otherwise only the stretch between the template's own control tokens that
    holds one is tokenised without them.
    """
    if parse_special or not any(_has_control(vocab, text) for text in _texts(messages)):
        return plain_tokens(vocab, template.render(messages, values, continued=continued))
    mark = _unused_character(_texts(messages))
    marked = [{k: v if k == "role" else _broken(v, vocab.controls, mark) for k, v in m.items()} for m in messages]
    ids = tokens([vocab.bos] if vocab.add_bos else [])
    rendered = template.render(marked, values, continued=continued)
    for text, special in _stretches(rendered, vocab.controls, mark):
        ids += vocab.tokenize(text.encode(), add_special=False, parse_special=special)
    if vocab.add_eos:
        ids.append(vocab.eos)
    return _one_bos(vocab, ids)


def _one_bos(vocab: Vocab, ids: array[int]) -> array[int]:
    """Without the second of two BOS: one was in the text, one was added."""
    doubled = vocab.add_bos and len(ids) > 1 and ids[0] == ids[1] == vocab.bos
    return ids[1:] if doubled else ids


def _texts(messages: Seq[Message]) -> list[str]:
    """What may have been written by anybody."""
    return [text for m in messages for key, text in m.items() if key != "role"]


def _has_control(vocab: Vocab, text: str) -> bool:
    data = text.encode()
    return vocab.tokenize(data, add_special=False, parse_special=True) != vocab.tokenize(
        data, add_special=False, parse_special=False
    )


def _unused_character(texts: Iterable[str]) -> str:
    used = set("".join(texts))
    return next(c for c in map(chr, range(0xE000, 0xF900)) if c not in used)


def _broken(text: str, controls: Seq[str], mark: str) -> str:
    """Every control-token string with a mark after its first character, so that none is whole."""
    for control in controls:
        if control in text:
            text = text.replace(control, control[0] + mark + control[1:])
    return text


def _stretches(text: str, controls: Seq[str], mark: str) -> list[tuple[str, bool]]:
    """(text, whether control tokens are read in it), cut at the template's own control tokens."""
    whole = "|".join(map(re.escape, controls))
    parts: list[tuple[str, bool]] = []
    for piece in re.split(f"((?:{whole})(?!{mark}))", text):
        special = mark not in piece
        if special and parts and parts[-1][1]:
            parts[-1] = (parts[-1][0] + piece, True)
        elif piece:
            parts.append((piece.replace(mark, ""), special))
    return parts
