"""The run: rows in, answers out, several at a time, until the input ends or someone asks to stop."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
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
from spec_cli.errors import Interrupted, SpecError, in_words
from spec_cli.scheduler import Job


@dataclass(slots=True)
class _Work:
    """A row on its way: what its record begins with, its line, its size in bytes."""

    head: dict[str, Any]
    line: int
    size: int


class Run:
    """One pass over the input. Whatever goes wrong with a row is its record, and the run goes on.

    Raises UsageError for settings that no row could be answered with.

    bound: the settings that answers depend on, for their hashes. answered: index -> hash of rows that
    need no answer any more; failed: those of them that got an error. stop: whether no new row may begin.
    """

    def __init__(
        self, engine: Engine, lines: Lines, write: Callable[[str], None], *, name: str, bound: Mapping[str, Any],
        answered: dict[int, str], failed: Container[int] = (), stop: Callable[[], bool],
    ) -> None:  # fmt: skip
        settings = engine.settings
        self.engine, self._lines, self._name, self._form = engine, lines, name, settings.format
        self._prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, settings.model, engine.say)
        self._prompts.check(settings)
        engine.check(settings)
        self._order = (AtOnce if settings.unordered else InOrder)(write)
        self._bound, self._answered, self._failed, self._stop = bound, answered, failed, stop
        self._jobs: dict[Job, _Work] = {}
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
            self._report(job)
        assert self._start is not None
        self.totals.seconds = perf_counter() - self._start
        return True

    def _take(self, line: Line) -> None:
        """Begin a row, unless it was answered, or say at once why that cannot be."""
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
        work = _Work(head, line.number, size)
        try:
            self._begin(line, work)
        except Interrupted:
            raise
        except Exception as error:
            self._fail(work, error)

    def _begin(self, line: Line, work: _Work) -> None:
        """Queue a row. Raises all that reading and preparing it may raise."""
        try:
            row = parse(line, self._form)
        except BadRow as bad:
            work.head = _with_id(work.head, bad.id)
            raise
        work.head = _with_id(work.head, row.id)
        for key in row.unused:
            self.engine.say(f"field {key!r} of rows is not used")
        settings = replace(self.engine.settings, **row.values)
        job = self.engine.start(self._prompts.tokens(row.content, settings), settings)
        self._start = perf_counter() if self._start is None else self._start
        self._jobs[job] = work

    def _report(self, job: Job) -> None:
        """The record of a row that has ended."""
        work = self._jobs.pop(job)
        try:
            if job.s.error:
                raise job.s.error
            answer = answer_of(job)
            text = _as_line({**work.head, **answer.as_json()})
        except Interrupted:
            raise
        except Exception as error:
            self._fail(work, error)
            return
        self.totals.add(answer.finish_reason, answer.stats)
        self._put(work, text)

    def _fail(self, work: _Work, error: Exception) -> None:
        if self.engine.settings.debug and not isinstance(error, SpecError):
            traceback.print_exception(error)
        reason = in_words(error).encode("utf-8", "replace").decode()
        record = {**work.head, "error": {"line": work.line, "reason": reason}}
        try:
            text = _as_line(record)
        except (ValueError, RecursionError):  # its own name is no JSON
            text = _as_line({key: value for key, value in record.items() if key != "id"})
        self.totals.failed += 1
        self._put(work, text)

    def _put(self, work: _Work, text: str) -> None:
        self.bytes_done += work.size
        self._order.put(work.head["index"], text)


def _as_line(record: dict[str, Any]) -> str:
    """Strict JSON that UTF-8 can hold. Raises ValueError or RecursionError where that cannot be."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    text.encode()
    return text


def _with_id(head: dict[str, Any], id: Any) -> dict[str, Any]:
    """A record's first fields, with the row's own name if it has one."""
    return head if id is None else {"index": head["index"], "id": id, "hash": head["hash"]}
