"""Ctrl-C and SIGTERM: stop the pass that runs, keep what was said."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from spec_cli.errors import Interrupted

EXIT = {signal.SIGINT: 130, signal.SIGTERM: 143}
if hasattr(signal, "SIGHUP"):
    EXIT[signal.SIGHUP] = 129


def handled() -> list[signal.Signals]:
    """Those that end a run here; nohup lets SIGHUP pass."""
    always = (signal.SIGINT, signal.SIGTERM)
    return [number for number in EXIT if number in always or signal.getsignal(number) is not signal.SIG_IGN]


def _always() -> bool:
    return True


class Received:
    """Which signal came first, if any.

    patient: the code that runs looks for the stop by itself (llama.cpp's passes and loading). Where
    it does not, a signal raises Interrupted if what runs `waits`: Python would begin a blocked write
    or open again.
    finishing: while patient, a first signal only asks; it takes a second one to stop what runs.
    """

    signal: int | None = None
    stopped = False
    patient = False
    finishing = False

    def __init__(self) -> None:
        self.waits: Callable[[], bool] = _always

    @contextmanager
    def writing(self, waits: Callable[[], bool]) -> Iterator[None]:
        """A write: a signal ends it only while it waits for its reader, so that nothing of it gets lost."""
        self.waits, self.patient = waits, False
        try:
            yield
        finally:
            self.waits, self.patient = _always, True

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM, 129 for a terminal that is gone."""
        return EXIT.get(signal.Signals(self.signal or signal.SIGINT), 130)

    def error(self) -> Interrupted:
        """What ends the command."""
        error = Interrupted("interrupted")
        error.exit_code = self.exit_code
        return error


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[Received]:
    """Call `stop` as soon as a signal comes, also while C runs, and raise Interrupted unless `patient`.

    The signal after the one that stopped raises KeyboardInterrupt.

    Python's own handlers wait for the C call to return, which may be a long prompt. The byte that
    `signal.set_wakeup_fd` writes at once wakes a thread instead.
    """
    received = Received()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        heard = 0
        while reader.recv(1) not in (b"\0", b""):
            heard += 1
            if heard > (received.finishing and received.patient):
                stop()

    def handle(number: int, frame: FrameType | None) -> None:
        first = received.signal is None
        if first:
            received.signal = number
            if received.finishing and received.patient:
                return
        stop()
        if received.stopped:
            raise KeyboardInterrupt(received.exit_code)
        received.stopped = True
        if not received.patient and received.waits():
            raise received.error()

    def unraisable(problem: sys.UnraisableHookArgs) -> None:
        """A signal's exception inside a callback from C ends there; `stop` was called."""
        if not isinstance(problem.exc_value, KeyboardInterrupt | Interrupted):
            old_hook(problem)

    old_hook, sys.unraisablehook = sys.unraisablehook, unraisable
    thread = threading.Thread(target=watch, daemon=True)
    with _deferred():
        thread.start()
        old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, handle) for number in handled()}
    try:
        yield received
    finally:
        with _deferred():
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)
            sys.unraisablehook = old_hook
            writer.send(b"\0")
            thread.join()
            reader.close()
            writer.close()


@contextmanager
def _deferred() -> Iterator[None]:
    """Signals wait until this is over, where the system can make them wait."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
