"""Token ids as compact arrays."""

from __future__ import annotations

from array import array
from typing import Literal

import numpy as np

Kind = Literal["plain", "accepted", "corrected"]
"""A token that nobody guessed, a guess that was right, what the target said instead of a wrong one."""


def tokens(ids: object = ()) -> array[int]:
    """A new token array (4 bytes a token, appends in place) from any iterable of ids."""
    return array("i", ids)  # type: ignore[call-overload, no-any-return]


def common_prefix(a: array[int], b: array[int]) -> int:
    """How many leading tokens `a` and `b` share."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:  # one memcmp, and the usual case
        return n
    # numpy views die with the statement: a live one would make `append` raise BufferError
    differ = np.frombuffer(a, np.int32, n) != np.frombuffer(b, np.int32, n)
    return int(differ.argmax())
