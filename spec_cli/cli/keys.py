"""Keys that are pressed while an answer is made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def silent(*, stops: bool = True) -> Iterator[None]:
    """Keys wait for whoever reads next: they are not shown amid an answer, `^C` neither.

    stops: Ctrl-Z and Ctrl-\\ too do nothing then, as they would tear the screen.
    """
    try:
        import termios
    except ImportError:
        yield
        return
    fd = next((fd for fd in (0, 2) if _is_foreground(fd)), None)
    try:
        if fd is None:
            raise termios.error
        old, new = termios.tcgetattr(fd), termios.tcgetattr(fd)
        new[3] &= ~termios.ECHO
        if stops:
            new[6][termios.VSUSP] = new[6][termios.VQUIT] = b"\0"
        termios.tcsetattr(fd, termios.TCSANOW, new)
    except termios.error:  # no terminal
        yield
        return
    try:
        yield
    finally:
        if _is_foreground(fd):  # else a shell has set it for somebody else
            with suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, old)


def _is_foreground(fd: int) -> bool:
    """Whether this is the terminal of a job that it listens to: one in the background would be stopped."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
