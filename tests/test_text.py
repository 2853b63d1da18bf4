"""From bytes of tokens to text: stops and split characters, however the bytes are cut."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

from spec_cli.text import TextStream


def stream(pieces: list[bytes], stops: list[str]) -> tuple[list[str], str | None, int]:
    out: list[str] = []
    text = TextStream(stops, out.append)
    for piece in pieces:
        if text.feed(piece):
            break
    text.close()
    return out, text.stop, text.n_bytes


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By definition: the stop complete first, the longer where two are complete together."""
    data = text.encode()
    ends = [(data.find(s.encode()) + len(s.encode()), data.find(s.encode()), s) for s in stops if s.encode() in data]
    if not ends:
        return text, None
    _, start, stop = min(ends)
    return data[:start].decode(), stop


@given(
    st.text("abcé🦙", max_size=30),
    st.lists(st.text("abcé🦙", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_any_cut_gives_the_same_text_and_stop(text: str, stops: list[str], places: list[int]) -> None:
    out, stop, n_bytes = stream(cut(text.encode(), places), stops)
    assert ("".join(out), stop) == first_stop(text, stops)
    assert n_bytes == len("".join(out).encode())


@given(st.binary(max_size=40), st.lists(st.integers(0, 200), max_size=20))
def test_bytes_that_are_no_utf8_become_replacements_the_same_way_however_cut(data: bytes, places: list[int]) -> None:
    out, _, n_bytes = stream(cut(data, places), [])
    assert "".join(out) == data.decode("utf-8", "replace")
    assert n_bytes == len(data)


def test_text_is_released_as_soon_as_it_cannot_be_a_stop() -> None:
    out, text = [], None
    text = TextStream(["</s>"], out.append)
    for piece in (b"a<", b"/", b"b", b"</", b"s", b"c"):
        text.feed(piece)
    text.close()
    assert out == ["a", "</b", "</sc"]


def test_held_text_is_flushed_once_at_the_end() -> None:
    assert stream([b"ab", b"xx"], ["xxx"]) == (["ab", "xx"], None, 4)


def test_a_split_character_waits_for_its_bytes() -> None:
    assert stream([b"a", b"\xc3", b"\xa9"], [])[0] == ["a", "é"]
    assert stream([b"a", b"\xc3"], [])[0] == ["a", "�"]
