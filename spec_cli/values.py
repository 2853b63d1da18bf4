"""The value of an option from text or TOML, checked against its row in the table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spec_cli.errors import UsageError
from spec_cli.settings import flags, is_list, kind_of, read_bias, read_flash_attn


def read(name: str, value: Any, origin: str) -> Any:
    """The value of a field from text or TOML, checked. Raises UsageError that names `origin` and the value."""
    flag, kind = flags()[name], kind_of(name)
    shown = repr(value) if isinstance(value, str) else str(value)
    shown = shown if len(shown) <= 100 else f"{shown[:97]}..."

    def refuse(why: str) -> UsageError:
        return UsageError(f"{origin}: {shown} {why}")

    if kind is bool:
        return _read_switch(value, refuse)
    if is_list(name):
        if flag.each is read_bias:
            value = _bias_texts(value)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise refuse("is not a list of texts")
        for text in texts:
            try:
                if flag.each:
                    flag.each(text)
            except (ValueError, KeyError):
                raise UsageError(f"{origin}: {text!r} is not {flag.metavar.replace('+-', '+BIAS or ID-')}") from None
        return tuple(texts)
    if isinstance(value, list) and kind is tuple:
        value = ",".join(map(str, value))
    if isinstance(value, bool) and flag.parse is read_flash_attn:
        value = "on" if value else "off"
    if value == "" and kind is Path:
        raise refuse("is not a path")
    takes_number = kind in (int, float)
    if not isinstance(value, str) and (
        isinstance(value, bool) or not takes_number or not isinstance(value, int | float)
    ):
        raise refuse(f"is not {'a number' if takes_number else 'text'}")
    try:
        result = flag.parse(str(value).strip()) if flag.parse else _convert(kind, value)
    except (ValueError, KeyError, OverflowError):
        expected = {int: "a whole number", float: "a number"}.get(kind, "valid")
        words = ", ".join(flag.choices) or flag.metavar
        raise refuse(f"is not {f'one of {words}' if flag.parse else expected}") from None
    if isinstance(result, int | float) and not isinstance(result, bool):
        low, high = flag.low, flag.high
        if isinstance(result, float) and not math.isfinite(result):
            raise refuse("is not a finite number")
        if (low is not None and result < low) or (high is not None and result > high):
            raise refuse(f"is out of range ({_range(low, high)})")
    if flag.choices and not flag.parse and result not in flag.choices:
        raise refuse(f"is not one of {', '.join(flag.choices)}")
    return result


def with_rivals_off(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a request sets, and what it thereby turns off: of two such options only one would count."""
    rivals = (("grammar", "json_schema"), ("json_schema", "grammar"), ("samplers", "sampler_seq"))
    off = {rival: None for mine, rival in rivals if values.get(mine) is not None}
    return {**off, **values}


def _bias_texts(value: Any) -> Any:
    """OpenAI's {"ID": BIAS} and llama-server's [[ID, BIAS], ...] as `ID+BIAS`; false is no token at all."""
    pairs = value.items() if isinstance(value, dict) else value
    if isinstance(value, str) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        return value
    return [f"{token}{-math.inf if bias is False else bias:+}" for token, bias in pairs]


_PLAIN_NUMBER = re.compile(r"[\x00-^`-\x7f]*")  # int() would read underscores and other scripts' digits


def _convert(kind: type, value: Any) -> Any:
    """A number in plain digits; a fraction is no whole number."""
    if (kind is int and isinstance(value, float)) or (kind in (int, float) and not _PLAIN_NUMBER.fullmatch(str(value))):
        raise ValueError
    return kind(value)


def _range(low: float | None, high: float | None) -> str:
    return f"{low:g} to {high:g}" if isinstance(low, float) else f"{low} to {high}"


def _read_switch(value: Any, refuse: Callable[[str], UsageError]) -> bool:
    if isinstance(value, bool):
        return value
    words = {"on": True, "enabled": True, "true": True, "1": True}
    words |= {"off": False, "disabled": False, "false": False, "0": False}
    if not isinstance(value, str) or value not in words:
        raise refuse("is not on or off")
    return words[value]
