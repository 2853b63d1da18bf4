"""A look at a grammar before C sees it: llama.cpp follows nesting, rules and ranges without a bound."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_NESTING = 500
MOST_RULES = 10_000  # llama.cpp makes one of each group, `*`, `+`, `?`, and optional repetition too
MOST_SYMBOLS = 1_000_000  # what ranges write out
MOST_BYTES = 1 << 22
_RANGE = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_TOKENS = re.compile(
    r'#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|<[^>\n]*>|::=|[(){}*+?]|[A-Za-z0-9-]+|\s+|.', re.DOTALL
)


class OutOfBounds(ValueError):
    """Why a grammar is not given to llama.cpp. at: the place in the text."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


def check_bounds(text: str) -> None:
    """Raises OutOfBounds for a grammar that would end the process, or fill its memory, before it is refused.

    It is no parser: what is no grammar passes, llama.cpp says what is wrong with it.
    """
    if len(text) > MOST_BYTES:
        raise OutOfBounds(0, f"more than {MOST_BYTES >> 20} MiB are no grammar")
    if "\0" in text:
        raise OutOfBounds(text.index("\0"), "a NUL character ends the grammar for C")
    depth = rules = written = 0
    size = 1  # symbols of the newest element, which a range repeats
    for at, token in _scan(text):
        if token.startswith("{"):
            low, high = _bounds(at, token)
            rules += 1 if high is None else high - low
            written += size * max(low, high or 0)
        elif token == "(":
            depth += 1
        elif token == ")":
            depth, size = depth - 1, 1
        elif token[0] == '"':
            size = max(1, len(token) - 2)
            written += size
        else:
            size = 1
        rules += token in ("(", "*", "+", "?", "::=")
        if depth > MOST_NESTING:
            raise OutOfBounds(at, f"groups are nested deeper than {MOST_NESTING}")
        if rules > MOST_RULES:
            raise OutOfBounds(at, f"more than {MOST_RULES} rules, those of groups and optional repetitions included")
        if written > MOST_SYMBOLS:
            raise OutOfBounds(at, f"repetitions write out more than {MOST_SYMBOLS} symbols")


def _scan(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    while found := _RANGE.match(text, at) or _TOKENS.match(text, at):
        if not (found[0].isspace() or found[0].startswith("#")):
            yield at, found[0]
        at = found.end()


def _bounds(at: int, token: str) -> tuple[int, int | None]:
    """Both ends of a range; None: it has no upper end."""
    found = _RANGE.fullmatch(token)
    if not found:
        return 0, 0
    if max(map(len, (found[1], found[3] or ""))) > len(str(MOST_SYMBOLS)):
        raise OutOfBounds(at, f"the range {token} is longer than {MOST_SYMBOLS}")
    low = int(found[1])
    high = low if not found[2] else int(found[3]) if found[3] else None
    if high is not None and high < low:
        raise OutOfBounds(at, f"the range {token} ends before it begins")
    return low, high
