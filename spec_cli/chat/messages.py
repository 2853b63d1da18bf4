"""Messages of a conversation, as OpenAI's requests have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_cli.errors import UsageError

Message = Mapping[str, str]
"""role and content; an assistant's may have its reasoning_content."""
_KEYS = ("role", "content", "name", "reasoning_content")
SYSTEM = ("system", "developer")  # roles that instruct; OpenAI's newer models call it developer


def read_messages(data: Any) -> list[Message]:
    """The list under the key `messages`. Raises UsageError that names the place of what is wrong."""
    if not isinstance(data, list):
        raise UsageError(f"messages: {kind(data)} where a list of messages should be")
    if not data:
        raise UsageError("messages is an empty list: at least one with role and content is needed")
    return [_message(m, f"messages[{i}]") for i, m in enumerate(data)]


def _message(m: Any, place: str) -> Message:
    if not isinstance(m, dict):
        raise UsageError(f"{place}: {kind(m)} where an object with role and content should be")
    m = {key: value for key, value in m.items() if value is not None}  # null is absent
    surplus = [key for key, value in m.items() if key not in _KEYS and value not in ([], {})]
    if surplus:
        raise UsageError(f"{place}: {surplus[0]!r} cannot be used")
    content = m.get("content", "" if "reasoning_content" in m else None)
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            raise UsageError(f"{place}: only parts of type text can be used")
        content = "".join(map(str, parts))
    texts: dict[str, Any] = {"role": m.get("role"), "content": content} | {key: m[key] for key in _KEYS[2:] if key in m}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{place}: {name} is {kind(value)} where a text should be")
    return texts


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")
