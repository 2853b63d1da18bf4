"""The answers of gpt-oss: messages on channels, each behind a header (OpenAI's harmony format)."""

from __future__ import annotations

import re
from collections.abc import Callable

from spec_cli.chat.thinking import Split, begun

BEGINS, MESSAGE, ENDS = ("<|start|>", "<|channel|>"), "<|message|>", ("<|end|>", "<|return|>", "<|call|>")
TAGS = (*BEGINS, MESSAGE, *ENDS)
_TAG = re.compile("|".join(map(re.escape, TAGS)))


class Channels(Split):
    """An answer as `<|start|>assistant<|channel|>NAME ...<|message|>TEXT`, any number of times.

    What is said on the channel analysis is thought, all else is the answer; so is text without a header.
    inside: the prompt ended with a header of analysis. Headers and tags are dropped, and the blank
    space around each text; texts of one kind are parted by an empty line. A header has one line.
    """

    def __init__(self, inside: bool, emit: Callable[[str, bool], None]) -> None:
        super().__init__(emit)
        self._thinks = inside
        self._step = self._body

    def close(self) -> None:
        """No more comes; an unfinished header is none of the answer."""
        if self._step == self._body:
            text, self._pending = self._pending, ""
            self._say(text.rstrip() if self._thinks else text)

    def _body(self) -> bool:
        """Text up to the next tag."""
        tag = _TAG.search(self._pending)
        if tag is None:
            ready = self._pending[: len(self._pending) - begun(self._pending, TAGS)].rstrip()
            self._pending = self._pending[len(ready) :]
            self._say(ready)
            return False
        ready = self._pending[: tag.start()].rstrip()
        if tag[0] in BEGINS:
            self._pending, self._step = self._pending[len(ready) :], self._header
        else:
            self._pending = self._pending[tag.end() :]
        self._say(ready)
        return True

    def _header(self) -> bool:
        """From a tag that begins one to `<|message|>`; the channel's name is the first word behind its tag."""
        header, found, after = self._pending.partition(MESSAGE)
        if "\n" in header.lstrip():  # somebody writes about headers
            tag = _TAG.search(header)
            assert tag
            text, self._pending, self._step = header[: tag.end()], self._pending[tag.end() :], self._body
            self._say(text)
            return True
        if found:
            name = re.split(r"[\s<]", header.rpartition(BEGINS[1])[2].lstrip(), maxsplit=1)[0]
            self._thinks = name == "analysis" and BEGINS[1] in header
            self._pending, self._step, self._fresh = after, self._body, True
        return bool(found)

    def _say(self, text: str) -> None:
        if self._fresh:
            text = text.lstrip()
            if text and (self.thought if self._thinks else self.answer):
                text = f"\n\n{text}"
        self._pass_on(text, self._thinks)
