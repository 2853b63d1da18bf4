"""Work in a process of its own: what ends that process ends no run.

llama.cpp stops the process over many a damaged file: an assertion, an exception, a bad pointer. So a fork
finds out first what it makes of a file.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from spec_cli.errors import FileError, Interrupted

T = TypeVar("T")
Say = Callable[[str], None]
_POLL = 0.1  # seconds
_PLACE = re.compile(r"[\w.+-]+\.(?:cpp|cuh?|c|h|hpp|m):\d+: .*")  # of an assertion, without its folders
_pipe: Connection | None = None


class Ended(FileError):
    """A signal ended the fork. what: was looked at. why: C's last words."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: llama.cpp ends the process over it: {why}")
        self.what, self.why = what, why


def can_fork() -> bool:
    """Whether a fork may go on with the libraries of this process; other systems' do not bear it."""
    return sys.platform == "linux"


def at(what: str) -> None:
    """Say what is looked at from now on, in case that this process ends over it."""
    if _pipe:
        _pipe.send(("at", what))


def apart(work: Callable[[Say], T], say: Say, stop: Callable[[], bool] = lambda: False) -> T:
    """The result of work(say), found in a fork of this process; what it raises there is raised here.

    Raises Ended when a signal ends the fork, Interrupted once `stop` is true.
    """
    ours, theirs = Pipe(duplex=False)
    with tempfile.TemporaryFile() as words, ours, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # BLAS has threads, and minds a fork itself
        child = os.fork()
        if not child:
            _work(work, theirs, words.fileno())
        theirs.close()
        what, status = "this file", None
        try:
            while True:
                if not ours.poll(_POLL):
                    if stop():
                        raise Interrupted("interrupted")
                    continue
                kind, value = ours.recv()
                if kind == "say":
                    say(value)
                elif kind == "at":
                    what = value
                elif kind == "error":
                    raise value
                else:
                    return value  # type: ignore[no-any-return]
        except EOFError:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            words.seek(0)
            raise Ended(what, _last(words.read(), status)) from None
        finally:
            if status is None:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _work(work: Callable[[Say], Any], pipe: Connection, words: int) -> None:
    """The fork's part: its result or error goes into the pipe, what C prints into a file. Never returns."""
    global _pipe
    _pipe = pipe
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both: the other one decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.disable()
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(words, 2)
        try:
            pipe.send(("result", work(lambda line: pipe.send(("say", line)))))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            pipe.send(("error", error))
    finally:
        os._exit(0)


def _last(printed: bytes, status: int) -> str:
    """The reason in what C printed before its end, else the signal."""
    text = printed.decode("utf-8", "replace")
    if found := _PLACE.findall(text) or re.findall(r"what\(\): +(.*)", text):
        return str(found[-1])
    return signal.strsignal(-status) or f"signal {-status}" if status < 0 else f"exit code {status}"
