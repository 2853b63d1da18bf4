"""The conversation as a text file, in llama-cli's form."""

from __future__ import annotations

from pathlib import Path

from spec_cli.chat.talk import Reply
from spec_cli.cli.terminal import Output, say_wrapped
from spec_cli.errors import FileError


class Transcript:
    """Grows with each turn; without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._output = Output(path) if path else None
        self.error: FileError | None = None
        """Why it could not be written any further."""

    def add(self, reply: Reply, question: str | None) -> None:
        """A question, unless the last one was answered anew, and its answer."""
        if self._output is None or self.error or not reply.kept:
            return
        asked = "" if question is None else f"User:\n{question}\n\n"
        thought = f"[Start thinking]\n\n{reply.thought}\n[End thinking]\n\n" if reply.thought else ""
        end = "\n" if reply.text.endswith("\n") else "\n\n"
        try:
            self._output.write(f"{asked}Assistant:\n{thought}{reply.text}{end}")
        except FileError as error:
            self.error = error
            say_wrapped(f"{error}: the transcript ends here")
