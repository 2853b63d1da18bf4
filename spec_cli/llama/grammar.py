"""Grammars that constrain an answer: GBNF, or a JSON schema turned into it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from spec_cli.errors import UsageError
from spec_cli.llama import log
from spec_cli.llama.log import C
from spec_cli.llama.rows import LogitRow
from spec_cli.llama.vocab import Vocab
from spec_cli.settings import Settings

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data
_FAULT = re.compile(r"error parsing grammar: (.*)", re.DOTALL)


def gbnf_of(settings: Settings) -> str | None:
    """The grammar of a run, None without one. Raises UsageError for a schema that cannot be turned into one."""
    if settings.json_schema is None:
        return settings.grammar
    return _from_schema(settings.json_schema, grammar_origin(settings))


@lru_cache(maxsize=16)
def _from_schema(text: str, where: str) -> str:
    """Rows of a batch often share one."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    if remote := re.search(r'"\$ref"\s*:\s*"(https?:[^"]*)"', json.dumps(schema)):
        raise UsageError(f"{where}: {remote[1]}: references to the network are not followed")
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        return str(json_schema_to_gbnf(json.dumps(schema)))
    except Exception as error:  # whatever a schema may do to the converter
        words = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{where}: cannot be made a grammar: {words}") from None


def grammar_origin(settings: Settings) -> str:
    """The flag or field that gave the grammar."""
    names = ("json_schema", "-j/--json-schema") if settings.json_schema is not None else ("grammar", "--grammar")
    return settings.origins.get(*names)


class Grammar:
    """A grammar and how far the answer has come in it.

    Raises UsageError with the place in the text that cannot be read.
    """

    def __init__(self, vocab: Vocab, text: str, where: str) -> None:
        self._vocab = vocab
        log.forget()
        with _stderr() as said:
            self._sampler = C.llama_sampler_init_grammar(vocab.handle, text.encode(), b"root")
        if not self._sampler:
            raise UsageError(f"{where}: {_fault(text, said())}")

    def allows(self, token: int) -> bool:
        """Whether the answer may go on with this token."""
        one = np.array([(token, 1.0, 0.0)], _CANDIDATE)
        self._apply(self._sampler, one)
        return bool(np.isfinite(one["logit"][0]))

    def choose(self, row: LogitRow, chain: int | None) -> int | None:
        """The choice of a chain (without one: the likeliest) among what is allowed; None where nothing is."""
        candidates = self._candidates(row)
        self._apply(self._sampler, candidates)
        if not np.isfinite(candidates["logit"]).any():
            return None
        if chain is None:
            return int(candidates["logit"].argmax())
        token = self._selected(chain, candidates)
        return token if token is not None and self.allows(token) else None

    def first_choice(self, row: LogitRow, chain: int) -> int | None:
        """The choice of a chain among all tokens; nothing is accepted yet."""
        return self._selected(chain, self._candidates(row))

    def accept(self, token: int) -> None:
        """Go on behind an allowed token."""
        C.llama_sampler_accept(self._sampler, token)

    def _candidates(self, row: LogitRow) -> Any:
        logits = row.logits
        candidates = np.zeros(len(logits), _CANDIDATE)
        candidates["id"] = np.arange(len(logits), dtype=np.int32)
        candidates["logit"] = logits
        return candidates

    def _selected(self, chain: int, candidates: Any) -> int | None:
        """What a chain selects; None if it has forbidden every candidate, as biases can."""
        array = self._apply(chain, candidates)
        chosen = array.data[array.selected] if 0 <= array.selected < array.size else None
        return int(chosen.id) if chosen and np.isfinite(chosen.logit) else None

    @staticmethod
    def _apply(sampler: int, candidates: Any) -> Any:
        data = candidates.ctypes.data_as(ctypes.POINTER(C.llama_token_data))
        array = C.llama_token_data_array(data, len(candidates), -1, False)
        C.llama_sampler_apply(sampler, ctypes.byref(array))
        return array

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
    line, column = text.count("\n", 0, place) + 1, place - (text.rfind("\n", 0, place) + 1) + 1
    return f"line {line}, column {column}: {' '.join(what.split())}"
