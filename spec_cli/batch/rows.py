"""A line of input as a prompt with its own settings, or as the reason why it is none."""

from __future__ import annotations

import difflib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from spec_cli.batch.lines import MOST_BYTES, Line
from spec_cli.chat.messages import Message, kind, read_messages
from spec_cli.errors import UsageError
from spec_cli.settings import row_fields
from spec_cli.values import read, shown, with_rivals_off

# of OpenAI's requests; they change no text
NOT_USED = ("model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
RAW_URL, CHAT_URL = "/v1/completions", "/v1/chat/completions"
_ONLY: dict[str, tuple[Any, ...]] = {
    "stream": (False,), "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",),
    "tools": (), "functions": (), "tool_choice": ("none", "auto"),
}  # fmt: skip
"""Of the same requests: the only values that can be done here."""
_OWN = ("id", "custom_id", "method", "url", "body", "prompt", "messages", *_ONLY)
ARRAY = re.compile(rb"\s*\[\s*(\{|$)")
"""How a list of objects begins, in one line or over several."""
_EMPTY: tuple[Any, ...] = ([], {})


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt. content: a text or a conversation; values: what the row sets, by field of Settings."""

    id: Any = None
    content: str | list[Message] = ""
    values: dict[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


class BadRow(UsageError):
    """Why a line is no row. id: what it calls itself, as far as that could be read."""

    def __init__(self, reason: str, id: Any = None) -> None:
        super().__init__(reason)
        self.id = id


def format_of(name: str, first: bytes) -> str:
    """jsonl or text: by the file's name, else by its first line that is not blank."""
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return "jsonl"
    if name.endswith(".txt"):
        return "text"
    try:
        is_json = isinstance(json.loads(first), dict | list | str)
    except (ValueError, RecursionError):
        is_json = False
    return "jsonl" if is_json or first.strip().startswith(b"{") or ARRAY.match(first) else "text"


def parse(line: Line, form: str) -> Row:
    """The row of a line in this format. Raises BadRow."""
    if line.too_long:
        raise BadRow(f"more than {MOST_BYTES >> 20} MiB in one line are no prompt")
    try:
        text = line.data.decode()
    except UnicodeDecodeError as error:
        raise BadRow(f"not UTF-8 at byte {error.start} of the line (0x{line.data[error.start]:02x})") from None
    if form == "text":
        return Row(content=_not_empty(text))
    try:
        data = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRow("half of a surrogate pair (\\ud800 to \\udfff) is no text") from None
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadRow(f"{kind(data)} where an object with a prompt should be")
    data = _present(data)
    id = data.get("custom_id", data.get("id"))
    try:
        return _row(data, id)
    except UsageError as error:
        raise BadRow(str(error), id) from None


def _row(data: dict[str, Any], id: Any) -> Row:
    values: dict[str, Any] = {}
    if "body" in data or "url" in data:
        data = _openai(data, values)
    for name, only in _ONLY.items():
        if name in data and data[name] not in (*only, *_EMPTY):
            raise UsageError(f"{name}: {shown(data[name])} cannot be done here")
    known = row_fields()
    unused = []
    data = _with_logprobs(_with_schema(data))
    for key, value in data.items():
        name = key.replace("-", "_")
        if name in NOT_USED:
            unused.append(key)
        elif name in known:
            field = known[name]
            values[field] = read(field, value, key)
        elif name not in _OWN and value not in _EMPTY:
            near = difflib.get_close_matches(name, [*known, "prompt", "messages"], n=1)
            raise UsageError(f"unknown field {shown(key)}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    values = with_rivals_off(values)
    if "" in values.get("stop", ()):
        raise UsageError("stop: an empty text would end the answer at once")
    return Row(id, _content(data), values, tuple(unused))


def _present(data: dict[str, Any]) -> dict[str, Any]:
    """null is absent, whatever its name."""
    return {key: value for key, value in data.items() if value is not None}


def _with_schema(data: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's `response_format` and a schema given as an object, as the text of a schema."""
    data = dict(data)
    form = data.pop("response_format", None)
    if form is not None:
        asked = form.get("type") if isinstance(form, dict) else None
        if asked == "json_schema" and isinstance(form.get("json_schema"), dict):
            data["json_schema"] = _or_any_object(form["json_schema"].get("schema"))
        elif asked == "json_object":
            data["json_schema"] = _or_any_object(form.get("schema"))
        elif asked != "text":
            raise UsageError(f"response_format: {shown(asked)} cannot be done here")
    if isinstance(data.get("json_schema"), dict):
        data["json_schema"] = json.dumps(data["json_schema"])
    if "grammar" in data and "json_schema" in data:
        raise UsageError("grammar and json_schema: give one of them")
    return data


def _or_any_object(schema: Any) -> Any:
    return {} if schema is None else schema


def _with_logprobs(data: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's `logprobs: true` with `top_logprobs`, as a number; template values as text."""
    top = data.pop("top_logprobs", None)
    if isinstance(data.get("logprobs"), bool):
        asked = data.pop("logprobs")
        if asked:
            data["logprobs"] = 0 if top is None else top
    elif top not in (None, 0):
        raise UsageError("top_logprobs: needs logprobs: true")
    if isinstance(data.get("chat_template_kwargs"), dict):
        data["chat_template_kwargs"] = json.dumps(data["chat_template_kwargs"])
    return data


def _openai(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The request inside a line of an OpenAI batch file; its URL says whether a prompt is continued as it is."""
    body, url = data.get("body"), data.get("url", CHAT_URL)
    if not isinstance(body, dict):
        raise UsageError("no body: an object with the request")
    if url not in (RAW_URL, CHAT_URL):
        raise UsageError(f"url: {shown(url)} is neither {CHAT_URL} nor {RAW_URL}")
    surplus = [key for key in data if key not in ("id", "custom_id", "method", "url", "body")]
    if surplus:
        raise UsageError(f"unknown field {shown(surplus[0])} beside the body")
    if url == RAW_URL:
        values["raw"] = True
    return _present(body)


def _content(data: dict[str, Any]) -> str | list[Message]:
    prompt, messages = data.get("prompt"), data.get("messages")
    if prompt is not None and messages is not None:
        raise UsageError("prompt and messages: one of them, not both")
    if messages is not None:
        conversation = read_messages(messages)
        if not any(m["content"].strip() for m in conversation):
            raise UsageError("the prompt is empty: no message has any content")
        return conversation
    if prompt is None:
        raise UsageError("no prompt and no messages")
    if not isinstance(prompt, str):
        raise UsageError(f"prompt: {kind(prompt)} where a text should be")
    return _not_empty(prompt)


def _not_empty(prompt: str) -> str:
    if not prompt.strip():
        raise BadRow("the prompt is empty")
    return prompt


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
