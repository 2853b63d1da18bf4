"""llama.cpp's own log, through our own callback: kept, filtered, or shown.

llama-cpp-python's logger maps ggml's levels wrongly (it hides errors and prints warnings), and
the first C call already logs, so this module is imported before anything else touches the library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed C assertion must not start a debugger

if not any(name.startswith(("OMP_", "GOMP_")) for name in os.environ):
    os.environ["GOMP_SPINCOUNT"] = "1000"  # threads that wait for one without a core must not take one themselves

import llama_cpp

C: Any = llama_cpp  # its functions are untyped ctypes

INFO, ERROR, CONTINUE = 2, 4, 5  # of enum ggml_log_level

_shown = ERROR + 1  # lowest level that goes to stderr
_level = INFO
_lines: list[tuple[int, str]] = []
_MOST_LINES = 2000


@C.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    global _level
    _level = _level if level == CONTINUE else level
    line = text.decode("utf-8", "replace")
    _lines.append((_level, line))
    del _lines[:-_MOST_LINES]
    if _level >= _shown:
        with suppress(OSError, ValueError):  # nobody reads it any more: no reason to stop
            sys.stderr.write(line)


C.llama_log_set(_receive, ctypes.c_void_p(0))
C.llama_backend_init()


def show(level: int | None) -> None:
    """Print C log lines of at least this level on stderr; None prints none."""
    global _shown
    _shown = ERROR + 1 if level is None else level


@contextmanager
def capture() -> Iterator[list[str]]:
    """Collect the log text of a block of C calls, line by line."""
    before = _lines[:]
    _lines.clear()
    lines: list[str] = []
    try:
        yield lines
    finally:
        lines += "".join(text for _, text in _lines).splitlines()
        _lines[:0] = before


def reason(*, first: bool = False) -> str:
    """The newest error in the log that names a cause, or the first; without the function names that C puts before."""
    errors = [text.strip() for level, text in _lines if level == ERROR and text.strip()]
    message = errors[0 if first else -1] if errors else "no reason given"
    for text in () if first else errors:  # the first one names the cause, what follows repeats it
        if "error loading model" in text or "failed to initialize" in text:
            message = errors[0] if "failed to load model from" in text else text
            break
    head, colon, tail = message.partition(": ")
    return tail if colon and " " not in head else message


def forget() -> None:
    """Drop what was collected, so that the next `reason` is about the next call."""
    _lines.clear()
