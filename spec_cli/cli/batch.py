"""`spec-cli batch`: answer every row of a file or a pipe."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from spec_cli.batch.journal import Journal, binding
from spec_cli.batch.lines import Line, Lines
from spec_cli.batch.whole import require_rows
from spec_cli.cli.argv import without_token
from spec_cli.cli.checked import checked
from spec_cli.cli.signals import Received, interruptible
from spec_cli.cli.terminal import Output, counted, is_stdout, quiet, require_writable, say, say_wrapped, width
from spec_cli.config import resolve
from spec_cli.errors import FileError, Interrupted, SpecError, UsageError
from spec_cli.hub import fetched
from spec_cli.settings import AUTOMATIC_ROWS, Settings

if TYPE_CHECKING:
    from spec_cli.batch.run import Run
    from spec_cli.render import Watch

SOME_FAILED = 1
SOON = 0.2  # seconds: what a pipe holds by then is looked at before anything is loaded


def batch(given: dict[str, Any]) -> int:
    """Answer many prompts, several at a time, and lose none.

    Rows come from FILE (or -f FILE, or standard input): JSON lines with `prompt` or `messages`, or
    plain text, a prompt a line. Each gives one JSON line. -o FILE can be gone on with after any end.
    """
    settings = checked(resolve(given, os.environ))
    tell = quiet if settings.quiet else say_wrapped
    for note in settings.notes:
        tell(note)
    settings = fetched(settings, tell)
    with ExitStack() as stack:
        fd, name = _source(settings, stack)
        bound = binding(settings)
        journal = _journal(settings, bound, stack)
        output = None if journal else stack.enter_context(Output(settings.output))
        if settings.stats:
            require_writable(settings.stats, "--stats")
        lines = Lines(fd, 2 * (settings.parallel if settings.parallel > 0 else AUTOMATIC_ROWS))
        _look(lines, name, settings, SOON)
        from spec_cli.batch.run import Run  # these load numpy, llama.cpp and rich: only now
        from spec_cli.cli.status import loading
        from spec_cli.engine import Engine
        from spec_cli.llama.abort import Abort
        from spec_cli.render import Watch

        watch = Watch(tell, _size_of(fd), settings.progress_every)
        abort = Abort()
        received = stack.enter_context(interruptible(abort.set))
        received.patient = True
        try:
            with loading(watch.say, not (settings.quiet or settings.verbose)) as told:
                engine = stack.enter_context(Engine(settings, told, abort, batch=True))
        except Interrupted:
            raise received.error() from None
        received.patient = False
        _look(lines, name, settings)
        received.patient = True
        written = 0

        def write(text: str) -> None:
            nonlocal written
            if journal:
                journal.write(text)
            else:
                assert output is not None
                with received.writing(output.waits):
                    output.write(text)
            written += 1

        if journal:
            journal.begin()
        run = Run(
            engine, lines, write, name=name, bound=bound, answered=journal.answered if journal else {},
            failed=journal.failed if journal else (), stop=lambda: received.signal is not None,
        )  # fmt: skip
        try:
            if not settings.quiet:
                watch.start()
            stack.callback(watch.close)
            _go_on(run, lines, watch, received)
            if journal and run.complete:
                journal.finish(ordered=not settings.unordered)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise FileError(f"{name or 'standard input'}: {error.strerror}") from None
        except SpecError:
            watch.close()
            say(_how_to_go_on(settings, written + run.totals.skipped, journal))
            raise
        watch.close()
        _report(run, settings, tell)
        if not run.complete:
            say(_how_to_go_on(settings, written + run.totals.skipped, journal))
            raise received.error()
        if journal and journal.answered:
            say(f"{counted(len(journal.answered), 'row')} of {settings.output} are of no row of this input, and stay")
        if run.failed_before:
            say(f"error: {counted(run.failed_before, 'row')} failed in an earlier run (--retry-errors tries again)")
        if run.totals.failed:
            say(f"error: {counted(run.totals.failed, 'row')} failed: the records with the key error say why")
        return SOME_FAILED if run.totals.failed or run.failed_before else 0


def _go_on(run: Run, lines: Lines, watch: Watch, received: Received) -> None:
    """Run to the end, or until a second signal: the first one lets the rows that run finish."""

    def wait() -> Line | None:
        """Nothing runs: a signal ends it at once."""
        received.finishing = received.patient = False
        line = None if received.signal else lines.take(wait=True)
        received.finishing = received.patient = True
        return line

    received.finishing, told = True, False
    try:
        while run.step(wait):
            watch.update(run)
            if received.signal and run.running and not told:
                told = True
                watch.say(f"interrupted: finishing {counted(run.running, 'row')} (once more stops at once)")
    except Interrupted:
        run.engine.scheduler.drop()
    finally:
        received.finishing = False


def _look(lines: Lines, name: str, settings: Settings, seconds: float | None = None) -> None:
    """Raises UsageError if the input, as soon as some of it is there, is seen not to be made of rows."""
    try:
        if lines.arrives(seconds):
            require_rows(name, settings.format, lines.peek())
    except OSError as error:
        raise FileError(f"{name or 'standard input'}: {error.strerror}") from None


def _source(settings: Settings, stack: ExitStack) -> tuple[int, str]:
    """Where rows come from, open, and its name. Raises UsageError or FileError."""
    if len(settings.file) > 1:
        raise UsageError(f"-f/--file: {' and '.join(settings.file)}: one file at a time")
    file = settings.file[0] if settings.file else None
    if file in (None, "-"):
        if sys.stdin is None or (file is None and sys.stdin.isatty()):
            raise UsageError("no rows: give a file, or pipe them in")
        return sys.stdin.fileno(), ""
    if not file:
        raise UsageError("-f/--file: '' is not a file")
    try:
        fd = os.open(file, os.O_RDONLY)
        stack.callback(os.close, fd)
        os.read(fd, 0)
    except OSError as error:
        raise FileError(f"-f/--file: {file}: {error.strerror}") from None
    return fd, file


def _size_of(fd: int) -> int | None:
    """Bytes that are to be read, if that is known."""
    status = os.fstat(fd)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _journal(settings: Settings, bound: dict[str, Any], stack: ExitStack) -> Journal | None:
    """The file of answers, or None where they go into a pipe or a device."""
    path = settings.output
    special = path is None or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    special = special or (path is not None and is_stdout(path))
    if settings.resume and special:
        raise UsageError("--resume: needs -o FILE, a file of an earlier run")
    if settings.retry_errors and not settings.resume:
        raise UsageError("--retry-errors: needs --resume")
    if path is None or special:
        return None
    require_writable(path, "-o/--output")
    journal = Journal(path, bound, resume=settings.resume, retry_errors=settings.retry_errors)
    stack.callback(journal.close)
    return journal


def _how_to_go_on(settings: Settings, n: int, journal: Journal | None) -> str:
    """What was saved and how the rest is had."""
    rows = f"{counted(n, 'row')} {'is' if n == 1 else 'are'}"
    if journal is None:
        return f"{rows} written; with -o FILE a run can be gone on with"
    shown, secrets = without_token(sys.argv[1:])
    args = [*shown, *(() if settings.resume else ("--resume",))]
    token = " (-hft is left out: set HF_TOKEN)" if secrets else ""
    return f"{rows} in {settings.output}; go on with{token}: spec-cli {shlex.join(args)}"


def _report(run: Run, settings: Settings, tell: Callable[[str], None]) -> None:
    """The numbers of the run."""
    from spec_cli.render import summary
    from spec_cli.report import position_line, statistics_lines

    totals, passes, calls = run.totals, run.engine.scheduler.passes, run.engine.drafter.calls
    for line in summary(totals, passes, calls, width() - 1):
        tell(line)
    if settings.verbose:
        tell(position_line(totals.stats.total))
        for line in statistics_lines(totals.stats.by_drafter, calls):
            tell(line)
    run.engine.say_if_busy()
    if run.changed:
        tell(f"{counted(run.changed, 'row')} changed since an earlier run, answered again")
    if settings.stats:
        numbers = json.dumps(totals.as_json(passes, calls, run.engine.n_rows), indent=1)
        try:
            settings.stats.write_text(numbers + "\n")
        except OSError as error:
            raise FileError(f"--stats: {settings.stats}: {error.strerror}") from None
