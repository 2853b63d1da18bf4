"""What was said so far. It knows no model, no template and no terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from spec_cli.chat.messages import SYSTEM, Message, kind, read_messages
from spec_cli.errors import UsageError


class Conversation:
    """Messages in their order: perhaps a system message, then turns, each a question and its answer."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = list(messages)

    @property
    def system(self) -> str | None:
        """The system message in front, or the developer's, which is the same."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] in SYSTEM else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages[self.system is not None :]
        self.messages = ([] if text is None else [{"role": "system", "content": text}]) + rest

    @property
    def starts(self) -> list[int]:
        """Where turns begin: the places of the user's messages."""
        return [i for i, m in enumerate(self.messages) if m["role"] == "user"]

    @property
    def question(self) -> str | None:
        """The user's last message."""
        return self.messages[self.starts[-1]]["content"] if self.starts else None

    @property
    def waits(self) -> bool:
        """Whether the last question has no answer."""
        return bool(self.messages) and self.messages[-1]["role"] == "user"

    def ask(self, text: str) -> None:
        """The user's message. Raises UsageError where the one before has no answer."""
        if self.waits:
            raise UsageError("the last message has no answer yet: /regen answers it, /undo takes it back")
        self.messages.append({"role": "user", "content": text})

    def answer(self, text: str, thinking: str = "") -> None:
        """The model's message, with what it thought before, if it did."""
        thought = {"reasoning_content": thinking} if thinking else {}
        self.messages.append({"role": "assistant", "content": text, **thought})

    def undo(self) -> None:
        """Take back the last turn. Raises UsageError if there is none."""
        if not self.starts:
            raise UsageError("there is no turn to take back")
        del self.messages[self.starts[-1] :]

    def reopen(self) -> None:
        """Take back the last answer. Raises UsageError if there is none."""
        if not self.starts:
            raise UsageError("no message to regenerate")
        del self.messages[self.starts[-1] + 1 :]

    def drop_oldest(self) -> bool:
        """Forget the oldest turn; False where only one is left."""
        if len(self.starts) < 2:
            return False
        first, second = self.starts[:2]
        del self.messages[first:second]
        return True

    def clear(self) -> None:
        """Forget all but the system message."""
        del self.messages[self.system is not None :]

    def as_json(self) -> str:
        """An object with the list `messages`, a message a line: OpenAI's shape, and a row of `batch`."""
        rows = ",\n".join(json.dumps(m, ensure_ascii=False) for m in self.messages)
        return f'{{"messages": [\n{rows}\n]}}\n' if rows else '{"messages": []}\n'

    @classmethod
    def from_json(cls, text: str) -> Conversation:
        """From such an object, or from the bare list. Raises UsageError for anything else."""
        try:
            data: Any = json.loads(text)
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError("half of a surrogate pair (\\ud800 to \\udfff) is no text") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"not JSON: {error}") from None
        if isinstance(data, dict):
            if "messages" not in data:
                raise UsageError("there are no messages in it")
            data = data["messages"]
        if not isinstance(data, list):
            raise UsageError(f"{kind(data)} where a list of messages should be")
        return cls(read_messages(data) if data else ())
