"""GBNF grammars: llama.cpp reads and follows them."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from spec_cli.errors import UsageError
from spec_cli.llama import log
from spec_cli.llama.constraint import Constraint, apply, one_candidate
from spec_cli.llama.gbnf import OutOfBounds, check_bounds
from spec_cli.llama.log import C
from spec_cli.llama.vocab import Vocab

_FAULT = re.compile(r"error parsing grammar: (.*)", re.DOTALL)


class Grammar(Constraint):
    """A GBNF grammar whose first rule is root. where: the flag or field that gave it.

    Raises UsageError with the place in the text that cannot be read.
    """

    def __init__(self, vocab: Vocab, text: str, where: str) -> None:
        try:
            check_bounds(text)
        except OutOfBounds as error:
            raise UsageError(f"{where}: {_place(text, error.at)}: {error}") from None
        log.forget()
        with _stderr() as said:
            self._sampler = C.llama_sampler_init_grammar(vocab.handle, text.encode(), b"root")
        if not self._sampler:
            raise UsageError(f"{where}: {_fault(text, said())}")

    def allows(self, token: int) -> bool:
        """Whether the answer may go on with this token."""
        one = one_candidate(token)
        self.forbid(one)
        return bool(np.isfinite(one["logit"][0]))

    def forbid(self, candidates: Any) -> None:
        """See `Constraint`."""
        apply(self._sampler, candidates)

    def accept(self, token: int) -> None:
        """Go on behind an allowed token."""
        C.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Free the grammar, once."""
        sampler, self._sampler = self._sampler, None
        if sampler:
            C.llama_sampler_free(sampler)


@contextmanager
def _stderr() -> Iterator[Any]:
    """Catch what C writes to standard error past every callback."""
    said = b""
    with tempfile.TemporaryFile() as file:
        if sys.stderr is not None:
            sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: said.decode("utf-8", "replace")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said = file.read()


def _fault(text: str, said: str) -> str:
    """What is wrong with a grammar, and where: llama.cpp's words end with the text that it could not read."""
    found = _FAULT.search(said)
    if not found:
        why = " ".join(said.split()) or log.reason()
        return why if "root" in why or "recursion" in why else f"llama.cpp does not take this grammar ({why})"
    words = found[1].removesuffix(f"\n\n{text}\n")
    what, at, rest = words.partition(" at ")
    if at and text.endswith(rest):
        place = len(text) - len(rest)
    elif name := re.search(r"identifier '([^']+)'", words):
        found = re.search(rf"(?<![\w-]){re.escape(name[1])}(?![\w-])", text)
        place = found.start() if found else 0
    else:
        place = len(text)
    return f"{_place(text, place)}: {' '.join(what.split())}"


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
