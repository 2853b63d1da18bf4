"""Lines end between words, and nothing of the text is lost or changed, in whatever pieces it comes."""

from __future__ import annotations

import re
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import example, given, settings
from prompt_toolkit.utils import get_cwidth

from spec_cli.cli.wrap import Wrap

quick = settings(max_examples=60, deadline=None)
ALPHABET = "abcdefgh,.(\n  \t日本。「é\u0301👩\u200d\u2019"


def cut(text: str, sizes: list[int]) -> list[str]:
    """The text in pieces of these sizes, over and over."""
    pieces, i = [], 0
    while text:
        n = sizes[i % len(sizes)]
        pieces.append(text[:n])
        text, i = text[n:], i + 1
    return pieces


def wrapped(text: str, columns: int | None, sizes: list[int] | None = None) -> str:
    wrap = Wrap(lambda: columns)
    shown = [piece for part in cut(text, sizes or [1]) for piece in wrap.feed(part)]
    return "".join(piece for piece, _ in [*shown, *wrap.flush()])


def width(line: str) -> int:
    column = 0
    for c in line:
        column = column // 8 * 8 + 8 if c == "\t" else column + max(0, get_cwidth(c))
    return column


def without_added(shown: str, text: str) -> str:
    """What was shown, without the line ends that the text has not."""
    left = iter(text)
    want, kept = next(left, None), []
    for c in shown:
        if c == want:
            kept.append(c)
            want = next(left, None)
        else:
            assert c == "\n", f"{c!r} was added to {text!r}"
    return "".join(kept)


texts = st.text(ALPHABET, max_size=200) | st.lists(st.text("abcdef", max_size=9), max_size=40).map(" ".join)
pieces = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@quick
@given(texts, st.integers(10, 40), pieces)
@example("a b" * 30, 10, [3])
def test_only_line_ends_are_added(text: str, columns: int, sizes: list[int]) -> None:
    assert without_added(wrapped(text, columns, sizes), text) == text


@quick
@given(texts, st.integers(10, 40), pieces)
def test_pieces_make_no_difference(text: str, columns: int, sizes: list[int]) -> None:
    assert wrapped(text, columns, sizes) == wrapped(text, columns, [len(text) or 1])


@quick
@given(st.lists(st.text("abcdef(日本。", min_size=1, max_size=4), max_size=60), st.integers(10, 40))
def test_no_line_is_wider_than_the_terminal_and_none_begins_with_a_blank(words: list[str], columns: int) -> None:
    lines = wrapped(" ".join(words), columns).split("\n")
    assert all(width(line) <= columns for line in lines)
    assert not any(line.startswith(" ") for line in lines)


@quick
@given(st.lists(st.text("abcdef", min_size=1, max_size=9), max_size=60), st.integers(10, 40))
def test_lines_are_as_full_as_they_can_be(words: list[str], columns: int) -> None:
    lines = wrapped(" ".join(words), columns).split("\n")
    for line, after in pairwise(lines):
        assert len(line) + len(after.split(" ")[0]) > columns - 1


def test_words_stay_whole() -> None:
    text = "The lighthouse's story is a tale of unimaginable challenges."
    assert wrapped(text, 30).split("\n") == ["The lighthouse's story is a ", "tale of unimaginable ", "challenges."]


def test_indentation_and_line_ends_of_code_stay() -> None:
    code = "for name in names:\n    print('Hello, ' + name)\n\n\tdone()\n"
    assert wrapped(code, 80) == code
    assert wrapped(code, 20) == "for name in names:\n    print('Hello, ' \n+ name)\n\n\tdone()\n"
    assert wrapped("    " + "x" * 30 + " y", 20) == "    " + "x" * 30 + " y"  # no line of blanks only


def test_a_word_longer_than_a_line_is_the_terminals_to_break() -> None:
    """A link stays whole for who copies it."""
    link = "https://example.org/" + "x" * 50
    assert wrapped(f"see {link} there", 20) == f"see \n{link} there"
    assert wrapped("y" * 3000, 20) == "y" * 3000


def test_what_follows_a_long_word_is_placed_where_the_terminal_is() -> None:
    long = "x" * 55  # two full lines of 20 and 15 columns
    assert wrapped(f"{long} abc de", 20) == f"{long} abc \nde"


def test_wide_characters_need_no_blanks() -> None:
    assert wrapped("日本語" * 6, 11) == "日本語日本\n語日本語日\n本語日本語\n日本語"
    assert wrapped("日本語日本。語", 11) == "日本語日\n本。語"  # no full stop begins a line
    assert wrapped("👩\u200d👩 " * 4, 11).replace("\n", "") == "👩\u200d👩 " * 4
    assert "\u200d\n" not in wrapped("👩\u200d👩 " * 40, 11)


@quick
@given(texts, st.integers(10, 40))
def test_at_most_one_word_is_held_back(text: str, columns: int) -> None:
    wrap, shown = Wrap(lambda: columns), ""
    for i, c in enumerate(text):
        shown += "".join(piece for piece, _ in wrap.feed(c))
        held = text[len(without_added(shown, text)) : i + 1]
        assert re.fullmatch(r"[ \t]*[^ \t\n]*", held)
        assert width(held.lstrip(" \t")) < columns


@quick
@given(texts, st.integers(10, 40), st.integers(0, 200))
def test_a_word_that_was_asked_for_early_is_not_torn_later(text: str, columns: int, at: int) -> None:
    """After a flush the rest of the word goes on where it stands."""
    wrap = Wrap(lambda: columns)
    shown = "".join(piece for piece, _ in [*wrap.feed(text[:at]), *wrap.flush()])
    assert without_added(shown, text[:at]) == text[:at]
    rest = "".join(piece for piece, _ in [*wrap.feed(text[at:]), *wrap.flush()])
    assert without_added(shown + rest, text) == text
    if at < len(text) and text[:at][-1:].isalpha() and text[at].isascii() and text[at].isalpha():
        assert rest[0] == text[at]


def test_styles_stay_with_their_text() -> None:
    wrap = Wrap(lambda: 12)
    shown = [*wrap.feed("one tw", "green"), *wrap.feed("o three", "red"), *wrap.feed(" ", "")]
    assert shown == [
        ("one", "green"), (" tw", "green"), ("o", "red"), (" ", "red"), ("\n", ""), ("three", "red"),
    ]  # fmt: skip


def test_a_width_that_nobody_knows_changes_nothing() -> None:
    text = "a b c " * 100
    assert wrapped(text, None, [7]) == text
    narrow: list[int | None] = [20]
    wrap = Wrap(lambda: narrow[0])
    shown = wrap.feed("one two")
    narrow[0] = None
    assert "".join(piece for piece, _ in [*shown, *wrap.feed(" three")]) == "one two three"
