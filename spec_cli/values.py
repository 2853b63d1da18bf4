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

    def refuse(why: str) -> UsageError:
        return UsageError(f"{origin}: {shown(value)} {why}")

    if kind is bool:
        return _read_switch(value, refuse)
    if is_list(name):
        if flag.each is read_bias:
            value = _bias_texts(value, refuse)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise refuse("is not a list of texts")
        for text in texts:
            try:
                if flag.each:
                    flag.each(text)
            except (ValueError, KeyError):
                form = flag.metavar.replace("+-", "+BIAS or ID-")
                raise UsageError(f"{origin}: {shown(text)} is not {form}") from None
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


def shown(value: Any, most: int = 100) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def with_rivals_off(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a request sets, and what it thereby turns off: of two such options only one would count."""
    rivals = (("grammar", "json_schema"), ("json_schema", "grammar"), ("samplers", "sampler_seq"))
    off = {rival: None for mine, rival in rivals if values.get(mine) is not None}
    return {**off, **values}


def _bias_texts(value: Any, refuse: Callable[[str], UsageError]) -> list[str]:
    """OpenAI's {"ID": BIAS} and llama-server's [[ID, BIAS], ...] as `ID+BIAS`; false is no token at all."""
    pairs = list(value.items()) if isinstance(value, dict) else [value] if isinstance(value, str) else value
    if not isinstance(pairs, list | tuple):
        raise refuse("is neither a list of [ID, BIAS] nor an object with a BIAS for each ID")
    return [pair if isinstance(pair, str) else _bias_text(pair, refuse) for pair in pairs]


def _bias_text(pair: Any, refuse: Callable[[str], UsageError]) -> str:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise refuse(f"has {shown(pair, 40)} where [ID, BIAS] should be")
    token, bias = pair
    if bias is False:
        return f"{token}-inf"
    if isinstance(bias, bool) or not isinstance(bias, int | float):
        raise refuse(f"has the bias {shown(bias, 40)} for {shown(token, 40)} where a number or false should be")
    return f"{token}{bias:+}"


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
