"""The run: rows in, answers out, several at a time, until the input ends or someone asks to stop."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from spec_cli.answer import answer_of
from spec_cli.batch.journal import row_hash
from spec_cli.batch.lines import Line, Lines
from spec_cli.batch.order import AtOnce, InOrder
from spec_cli.batch.rows import BadRow, format_of, parse
from spec_cli.batch.totals import Totals
from spec_cli.chat.prompt import Prompts
from spec_cli.engine import Engine
from spec_cli.errors import PromptError, UsageError
from spec_cli.scheduler import Job


class Run:
    """One pass over the input.

    bound: the settings that answers depend on, for their hashes. answered: index -> hash of rows that
    need no answer any more; failed: those of them that got an error. stop: whether no new row may begin.
    """

    def __init__(
        self, engine: Engine, lines: Lines, write: Callable[[str], None], *, name: str, bound: Mapping[str, Any],
        answered: dict[int, str], failed: Container[int] = (), stop: Callable[[], bool],
    ) -> None:  # fmt: skip
        settings = engine.settings
        self.engine, self._lines, self._name, self._form = engine, lines, name, settings.format
        self._prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, settings.model)
        self._order = (AtOnce if settings.unordered else InOrder)(write)
        self._bound, self._answered, self._failed, self._stop = bound, answered, failed, stop
        self._jobs: dict[Job, tuple[dict[str, Any], int]] = {}
        self._last = 0
        self.totals = Totals()
        self.read = 0
        """Rows read so far."""
        self.bytes_done = 0
        """Bytes of input whose rows need no more work."""
        self.failed_before = 0
        """Rows that an earlier run could not answer, and that were not tried again."""
        self._given_up = False
        self.changed = 0
        """Rows that an earlier run answered when they were others."""
        self._start: float | None = None

    @property
    def running(self) -> int:
        """Rows being worked on."""
        return self.engine.scheduler.n_running

    @property
    def complete(self) -> bool:
        """Whether every row has its answer."""
        return self._lines.ended and not self._jobs and not self._given_up

    def step(self, wait: Callable[[], Line | None]) -> bool:
        """Take in what there is room for, then one round; False when nothing is left to do.

        wait: gives the next line when nothing else is to be done.
        """
        scheduler = self.engine.scheduler
        while scheduler.wants_more and self._order.waiting < 4 * self.engine.n_rows and not self._stop():
            line = wait() if scheduler.idle else self._lines.take(wait=False)
            if line is None:
                break
            self._take(line)
        if self._stop():
            for job in scheduler.withdraw():
                del self._jobs[job]
                self._given_up = True
        if scheduler.idle:
            return not (self._lines.ended or self._stop())
        for job in scheduler.step():
            answer = answer_of(job)
            self.totals.add(answer.finish_reason, answer.stats)
            head, size = self._jobs.pop(job)
            self._put({**head, **answer.as_json()}, size)
        assert self._start is not None
        self.totals.seconds = perf_counter() - self._start
        return True

    def _take(self, line: Line) -> None:
        """Begin a row, or say at once why that cannot be."""
        index, self.read = self.read, self.read + 1
        size, self._last = line.end - self._last, line.end
        if self._form == "auto":
            self._form = format_of(self._name, line.data)
        head: dict[str, Any] = {"index": index, "hash": row_hash(self._bound, self._form, line.data)}
        known = self._answered.pop(index, None)
        if known == head["hash"]:
            self.totals.skipped += 1
            self.failed_before += index in self._failed
            self.bytes_done += size
            self._order.put(index, "")
            return
        self.changed += known is not None
        try:
            row = parse(line, self._form)
        except BadRow as bad:
            self._fail(_with_id(head, bad.id), line.number, str(bad), size)
            return
        for key in row.unused:
            self.engine.say(f"field {key!r} of rows is not used")
        settings = replace(self.engine.settings, **row.values)
        try:
            job = self.engine.start(self._prompts.tokens(row.content, settings), settings)
        except (PromptError, UsageError) as error:
            self._fail(_with_id(head, row.id), line.number, str(error), size)
            return
        self._start = perf_counter() if self._start is None else self._start
        self._jobs[job] = _with_id(head, row.id), size

    def _fail(self, head: dict[str, Any], number: int, reason: str, size: int) -> None:
        self.totals.failed += 1
        self._put({**head, "error": {"line": number, "reason": reason}}, size)

    def _put(self, record: dict[str, Any], size: int) -> None:
        self.bytes_done += size
        self._order.put(record["index"], json.dumps(record, ensure_ascii=False) + "\n")


def _with_id(head: dict[str, Any], id: Any) -> dict[str, Any]:
    """A record's first fields, with the row's own name if it has one."""
    return head if id is None else {"index": head["index"], "id": id, "hash": head["hash"]}
