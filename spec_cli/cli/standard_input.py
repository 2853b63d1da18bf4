"""Standard input as one text: whose it is, and what is said while nothing comes."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable

from spec_cli.errors import FileError

PATIENCE = 3.0  # seconds


def descriptor() -> int | None:
    """Its number; None where it is closed, or no file of the system's."""
    try:
        return None if sys.stdin is None else sys.stdin.fileno()
    except (OSError, ValueError):
        return None


def is_ours() -> bool:
    """Whether text that nobody asked for by `-f -` is meant for this run.

    A pipe or a socket is, and a file from its beginning; a terminal is not, nor a device, nor a file
    that somebody else is reading, such as a shell's loop over its lines.
    """
    fd = descriptor()
    if fd is None:
        return False
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return os.lseek(fd, 0, os.SEEK_CUR) == 0
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def whole(most: int, tell: Callable[[str], None]) -> bytes:
    """All of it, at most `most` bytes. Tells once, after a while, that nothing comes. Raises FileError."""
    assert sys.stdin is not None
    if not (sys.stdin.isatty() or _comes(descriptor())):
        tell("waiting for standard input (</dev/null if there is none)")
    try:
        return sys.stdin.buffer.read(most)
    except OSError as error:
        raise FileError(f"standard input: {error.strerror}") from None


def _comes(fd: int | None) -> bool:
    """Whether there is something to read, or an end, before long. True where a system cannot tell."""
    try:
        return fd is None or bool(select.select([fd], [], [], PATIENCE)[0])
    except (OSError, ValueError):
        return True
