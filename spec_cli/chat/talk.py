"""A conversation with a model: each answer is that of a fresh run on the messages so far.

What it does not know: which of the conversation's tokens are in memory. The prompt is rendered anew
from the messages, and the engine decodes what its memory does not hold.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spec_cli.answer import Answer
from spec_cli.chat.channels import TAGS, Channels
from spec_cli.chat.conversation import Conversation
from spec_cli.chat.prompt import Prompts, template_values
from spec_cli.chat.thinking import HARMONY, Split, Thinking, marks_of
from spec_cli.engine import Engine
from spec_cli.errors import PromptError, UsageError
from spec_cli.llama.vocab import Vocab
from spec_cli.scheduler import Job
from spec_cli.settings import Settings
from spec_cli.stats import Stats
from spec_cli.tokens import Kind
from spec_cli.values import with_rivals_off

ROOM = 8  # a context shift is due when less than an eighth of the context is left


class Listener(Protocol):
    """Who is told of an answer as it is made."""

    def write(self, text: str, thought: bool) -> None:
        """A piece of it, and whether it is part of what the model thinks."""

    def mark(self, kind: Kind) -> None:
        """Who made the tokens of the next piece."""

    def watch(self, job: Job) -> None:
        """How it goes on, after each pass."""


@dataclass(frozen=True)
class Reply:
    """An answer and what came with it.

    text, thought: its parts. kept: whether it became part of the conversation; one that was
    interrupted before its first word did not. dropped: turns that a context shift took away.
    drafter_s: seconds that each drafter took.
    """

    answer: Answer
    text: str
    thought: str
    kept: bool
    dropped: int
    drafter_s: dict[str, float]


class Talk:
    """A conversation, its settings, which may change between answers, and the sums of its answers.

    Raises UsageError for a model without a chat template, or one whose template refuses the system message.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        if not engine.chat_template:
            raise UsageError(
                f"{settings.model} has no chat template: --chat-template gives one (chatml is one), and "
                "spec-cli generate continues plain text"
            )
        self.engine, self.settings = engine, replace(settings, system_prompt=None)
        self.conversation = Conversation()
        self.conversation.system = settings.system_prompt
        self.last: Reply | None = None
        self.stats = Stats(answers=0)
        self.drafter_s = dict.fromkeys(engine.drafter.calls, 0.0)
        self._prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, settings.model)
        self._marks = marks_of(engine.chat_template)
        texts = TAGS if self._marks is HARMONY else (self._marks.start, self._marks.end) if self._marks else ()
        self._printed = {t for text in texts for t in _control_tokens(engine.vocab, text)}
        self._prompts.tokens([*self.conversation.messages, {"role": "user", "content": "?"}], self.settings)

    def change(self, values: Mapping[str, Any], origin: str) -> None:
        """Other settings from now on. Raises UsageError, with nothing changed, for what this run cannot do."""
        origins = {**self.settings.origins, **dict.fromkeys(values, origin)}
        settings = replace(self.settings, **with_rivals_off(values), origins=origins)
        self.engine.check(settings)
        template_values(settings)
        self.settings = settings

    def ask(self, text: str, listener: Listener, *, instead: bool = False) -> Reply:
        """Answer the user's message. What fails, or is interrupted before its first word, leaves no trace.

        instead: in the place of the last message.

        Raises PromptError where the conversation does not fit the context, UsageError for what the
        template refuses.
        """

        def change() -> None:
            if instead:
                self.conversation.undo()
            self.conversation.ask(text)

        return self._reply(change, listener)

    def regenerate(self, listener: Listener) -> Reply:
        """Answer the last message anew; so with its errors."""
        return self._reply(self.conversation.reopen, listener)

    def _reply(self, change: Callable[[], None], listener: Listener) -> Reply:
        before, kept = self.conversation.messages[:], False
        try:
            change()
            prompt, dropped = self._prompt()
            thinking = self._split(prompt, listener)
            spent = self._spent()
            answer = self.engine.generate(
                prompt, self.settings, thinking.feed, listener.mark, self._printed, listener.watch
            )
            try:
                thinking.close()
            finally:  # it may be interrupted too
                kept = bool(thinking.answer or thinking.thought or answer.finish_reason != "interrupted")
                if kept:
                    self.conversation.answer(thinking.answer, thinking.thought)
        finally:
            if not kept:
                self.conversation.messages = before
        drafter_s = {name: seconds - spent[name] for name, seconds in self._spent().items()}
        self.last = Reply(answer, thinking.answer, thinking.thought, kept, dropped, drafter_s)
        self.stats.merge(answer.stats)
        for name, seconds in drafter_s.items():
            self.drafter_s[name] += seconds
        return self.last

    def _prompt(self) -> tuple[array[int], int]:
        """The conversation as tokens, and how many turns a context shift took away for it."""
        n_ctx, dropped = self.engine.target.n_ctx, 0
        shift, least = self.settings.context_shift, n_ctx // ROOM
        while True:
            try:
                prompt = self._prompts.tokens(self.conversation.messages, self.settings)
                if len(prompt) > n_ctx:
                    raise PromptError(f"the conversation has {len(prompt)} tokens, the context {n_ctx}")
            except PromptError as error:
                if not (shift and self.conversation.drop_oldest()):
                    raise PromptError(f"the context is full: {error}") from None
            else:
                if not (shift and n_ctx - len(prompt) < least and self.conversation.drop_oldest()):
                    return prompt, dropped
            least = n_ctx // 2  # once one must go, make room for a while
            dropped += 1

    def _split(self, prompt: array[int], listener: Listener) -> Split:
        inside = self._starts_inside(prompt)
        return (
            Channels(inside, listener.write)
            if self._marks is HARMONY
            else Thinking(self._marks, inside, listener.write)
        )

    def _starts_inside(self, prompt: array[int]) -> bool:
        """Whether the template itself begins what is thought."""
        if not self._marks:
            return False
        end = b"".join(self.engine.vocab.piece(t, special=True) for t in prompt[-32:]).decode("utf-8", "replace")
        return end.rstrip().endswith(self._marks.start.rstrip())

    def _spent(self) -> dict[str, float]:
        return {name: c.begin.seconds + c.draft.seconds for name, c in self.engine.drafter.calls.items()}


def _control_tokens(vocab: Vocab, text: str) -> list[int]:
    """The control tokens in a text, which are not printed by themselves."""
    ids = vocab.tokenize(text.encode(), add_special=False, parse_special=True)
    return [t for t in ids if not vocab.piece(t)]
