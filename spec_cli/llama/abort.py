"""Stopping llama.cpp inside a pass without touching the interpreter."""

from __future__ import annotations

import ctypes
import sys

from spec_cli.llama.log import C


class Abort:
    """A byte that every graph node of every pass looks at.

    The callback is libc's `strlen` with this byte as its text: "" is 0, go on; "\\1" is 1, stop.
    So the check costs nothing, needs no GIL, and a thread or signal handler may set it any time.
    """

    def __init__(self) -> None:
        libc = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
        self._byte = ctypes.create_string_buffer(2)
        self.callback = ctypes.cast(libc.strlen, C.ggml_abort_callback)
        self.data = ctypes.cast(self._byte, ctypes.c_void_p)

    def set(self) -> None:
        """Stop the pass that runs now and every later one."""
        self._byte[0] = b"\1"

    def clear(self) -> None:
        """Let passes run again."""
        self._byte[0] = b"\0"

    @property
    def is_set(self) -> bool:
        """Whether passes stop."""
        return self._byte[0] != b"\0"
