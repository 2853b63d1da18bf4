"""Lines that end between words, for text that comes in pieces."""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import category

from prompt_toolkit.utils import get_cwidth

Piece = tuple[str, str]
"""A text and its style."""
BLANKS, JOINER = " \t", "\u200d"
TAB = 8  # columns


class Wrap:
    """Adds the line ends that let no word be broken by the terminal's edge; changes nothing else.

    columns: the terminal's width, asked for anew with each piece; None: nothing is known, nothing is added.
    The last column is left to a blank, so no line that goes on fills it. At most one word and the blanks
    before it are held back. A word longer than a line is the terminal's to break, and so is one whose
    beginning was already given away. Wide characters are words by themselves. A line's first blanks stay.
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._ask, self._columns = columns, 0
        self._column = 0
        self._indents = True  # the line has nothing but blanks so far
        self._blanks: list[Piece] = []
        self._word: list[Piece] = []
        self._word_width = 0
        self._wide = False  # it ends with a wide character
        self._begun = False  # the beginning of this word was given away
        self._out: list[Piece] = []

    def feed(self, text: str, style: str = "") -> list[Piece]:
        """Take a piece of text; what can be shown now."""
        columns = self._ask()
        if columns is None:
            return [*self.flush(), (text, style)]
        self._columns = columns
        for c in text:
            self._take(c, style)
        return self._given()

    def flush(self) -> list[Piece]:
        """All that is held back. What follows without a blank belongs to the same word."""
        self._begun = bool(self._word) or (self._begun and not self._blanks)
        self._release()
        return self._given()

    def _take(self, c: str, style: str) -> None:
        if c == "\n":
            self._release()
            self._put(c, style, 0)
            self._column, self._indents, self._begun = 0, True, False
            return
        if c in BLANKS:
            if self._word:
                self._release()
            self._begun = False
            self._blanks.append((c, style))
            return
        width = max(0, get_cwidth(c))
        if self._begun and width < 2:
            self._put(c, style, width)
            return
        self._begun = False
        if self._word and (width == 2 or self._wide) and not _belong_together(self._word[-1][0], c, width):
            self._release()
        if not self._word and width == 0 and not self._blanks:
            self._put(c, style, 0)  # it belongs to what stands before it
            return
        self._wide = width == 2
        self._word.append((c, style))
        self._word_width += width
        if self._word_width > self._columns - 1:
            self._release()
            self._begun = True

    def _release(self) -> None:
        """Show what is held, on a new line where the word has no room on this one."""
        for c, style in self._blanks:
            width = 1 if c == " " else min(TAB - self._column % TAB, max(0, self._columns - 1 - self._column))
            if self._column + width > self._columns:
                self._break()
            self._put(c, style, width)
        if self._word:
            if self._column + self._word_width > self._columns - 1 and not self._indents:
                self._break()
            self._indents = False
        for c, style in self._word:
            self._put(c, style, max(0, get_cwidth(c)))
        self._blanks, self._word, self._word_width = [], [], 0

    def _break(self) -> None:
        self._put("\n", "", 0)
        self._column, self._indents = 0, True

    def _put(self, text: str, style: str, width: int) -> None:
        if self._out and self._out[-1][1] == style:
            self._out[-1] = (self._out[-1][0] + text, style)
        else:
            self._out.append((text, style))
        # at the edge the terminal goes on in the next line
        self._column = width if self._column + width > self._columns else self._column + width

    def _given(self) -> list[Piece]:
        given, self._out = self._out, []
        return given


def _belong_together(before: str, c: str, width: int) -> bool:
    """Whether no line may end between two characters of which one is wide: no mark or bracket is left alone."""
    return (
        width == 0 or before == JOINER or category(before) in ("Ps", "Pi") or category(c) in ("Pe", "Pf", "Po")
    )  # fmt: skip
