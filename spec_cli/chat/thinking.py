"""Telling what a model thinks from what it answers.

llama.cpp finds the marks by rendering a template in several ways (common/chat-auto-parser); here they
are a table, and a model has those that its template names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """What stands before and behind what is thought."""

    start: str
    end: str


HARMONY = Marks("<|channel|>analysis<|message|>", "<|end|>")  # gpt-oss; `channels` reads what it says
KNOWN = (
    Marks("<think>", "</think>"),  # DeepSeek, Qwen, GLM, SmolLM3, MiniMax, Nemotron and most others
    Marks("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Marks("<seed:think>", "</seed:think>"),
    Marks("<mm:think>", "</mm:think>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    Marks("<|channel>thought\n", "<channel|>"),  # Gemma 4
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    HARMONY,
)


def marks_of(template: str) -> Marks | None:
    """The marks of a model with this template, None where it does not think."""
    return next((marks for marks in KNOWN if marks.start.strip() in template), None)


class Split:
    """Splits an answer as it comes. emit gets each piece of it and whether it was thought.

    emit may raise: what it got is not given again.
    """

    _step: Callable[[], bool]

    def __init__(self, emit: Callable[[str, bool], None]) -> None:
        self._emit = emit
        self._pending = ""
        self._fresh = True  # nothing of this part was shown yet
        self.thought = ""
        self.answer = ""

    def feed(self, text: str) -> None:
        """The next piece."""
        self._pending += text
        while self._step():
            pass

    def close(self) -> None:
        """No more comes."""
        raise NotImplementedError

    def _pass_on(self, text: str, thought: bool) -> None:
        if not text:
            return
        self._fresh = False
        if thought:
            self.thought += text
        else:
            self.answer += text
        self._emit(text, thought)


def begun(text: str, marks: Iterable[str]) -> int:
    """Length of the longest end of a text that begins one of these marks, and may still become it."""
    return max(
        (n for mark in marks for n in range(1, min(len(mark), len(text) + 1)) if mark.startswith(text[-n:])), default=0
    )


class Thinking(Split):
    """An answer with one thought at its beginning, between two marks.

    inside: the prompt ended with the start mark. Marks are dropped, and the blank space around what is
    thought. A start mark counts at the beginning of an answer only.
    """

    def __init__(self, marks: Marks | None, inside: bool, emit: Callable[[str, bool], None]) -> None:
        super().__init__(emit)
        self._marks = marks
        self._step = self._answer if marks is None else self._thought if inside else self._begin

    def close(self) -> None:
        """No more comes."""
        text, self._pending = self._pending, ""
        thought = self._step == self._thought
        self._pass_on(text.rstrip() if thought else text, thought)

    def _begin(self) -> bool:
        assert self._marks
        text = self._pending.lstrip()
        mark = self._marks.start
        if mark.startswith(text) and text != mark:  # it may still become one
            return False
        if text.startswith(mark):
            self._pending, self._step = text[len(mark) :], self._thought
        else:
            self._step = self._answer
        return True

    def _thought(self) -> bool:
        assert self._marks
        end = self._marks.end
        text = self._pending.lstrip() if self._fresh else self._pending
        before, found, after = text.partition(end)
        if found:
            self._pending, self._step = after, self._rest
            self._pass_on(before.rstrip(), thought=True)
            return True
        ready = text[: len(text) - begun(text, (end,))].rstrip()
        self._pending = text[len(ready) :]
        self._pass_on(ready, thought=True)
        return False

    def _rest(self) -> bool:
        """The answer after what was thought: without the empty lines between."""
        self._pending = self._pending.lstrip()
        if self._pending:
            self._step = self._answer
        return bool(self._pending)

    def _answer(self) -> bool:
        text, self._pending = self._pending, ""
        self._pass_on(text, thought=False)
        return False
