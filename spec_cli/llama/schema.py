"""JSON schemas: llguidance (github.com/guidance-ai/llguidance) says which tokens may come next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from spec_cli.errors import BackendError, UsageError
from spec_cli.llama.constraint import Constraint
from spec_cli.llama.json_schema import Schema, misspelled, place_of, read_schema
from spec_cli.llama.vocab import Vocab

OPTIONS: Any = {
    # llama.cpp's rule for blank space (common/json-schema-to-grammar.cpp): models that love it cannot go on for ever
    "whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})?",
    "json_allowed_escapes": 'nrbtf\\"',  # a name that is spelled with \u would count as another one
    "json_allow_general_unicode_escapes": False,
    "lenient": False,
    "coerce_one_of": False,
}
STACK = 512 << 20  # bytes, of which only what is used is taken: llguidance recurses from reference to reference
T = TypeVar("T")
_tokenizers: WeakKeyDictionary[Vocab, LLTokenizer] = WeakKeyDictionary()


class JsonSchema(Constraint):
    """Answers are JSON that a schema describes. where: the flag or field that gave it.

    Raises UsageError for what is no schema, with the keyword and its place for what cannot be enforced, and for
    what nothing satisfies; BackendError where llguidance reaches a limit in the midst of an answer.
    """

    def __init__(self, vocab: Vocab, text: str, where: str) -> None:
        self._where, self._vocab = where, vocab
        tokenizer, grammar = _tokenizer(vocab), compiled(text, where)
        self._matcher = _with_a_deep_stack(lambda: LLMatcher(tokenizer, grammar, log_level=0))
        if self._matcher.is_error():
            raise UsageError(f"{where}: {_plain(self._matcher.get_error())}")
        allowed = self._allowed()
        allowed[vocab.ends] = False
        if not allowed.any():
            raise UsageError(f"{where}: nothing can follow this schema: its references go round in a circle")

    def allows(self, token: int) -> bool:
        """Whether the answer may go on with this token."""
        if self._checked(self._matcher.is_stopped()):  # complete: llguidance takes an end token, and validates none
            return self._vocab.is_end(token)
        return bool(self._checked(self._matcher.validate_tokens([token])) == 1)

    def forbid(self, candidates: Any) -> None:
        """See `Constraint`."""
        allowed = self._allowed()
        self._checked(None)
        candidates["logit"][~allowed[candidates["id"]]] = -np.inf

    def _allowed(self) -> Any:
        """bool [vocab.size]: tokens that may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self._vocab.size, bitorder="little").astype(bool)

    def accept(self, token: int) -> None:
        """Go on behind an allowed token."""
        self._checked(self._matcher.consume_token(token))

    def _checked(self, result: Any) -> Any:
        if self._matcher.is_error():
            raise BackendError(f"{self._where}: llguidance gives up: {_plain(self._matcher.get_error())}")
        return result

    def close(self) -> None:
        """Nothing is held outside Python."""


def _tokenizer(vocab: Vocab) -> LLTokenizer:
    """The vocabulary as llguidance knows it, made once (0.2 s for 50,000 tokens)."""
    known = _tokenizers.get(vocab)
    if known is None:
        known = _tokenizers[vocab] = LLTokenizer(TokenizerWrapper(_Pieces(vocab)), eos_token=vocab.ends)
    return known


class _Pieces:
    """A vocabulary for llguidance: the bytes of every token; control tokens are no text of an answer."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self.eos_token_id, self.bos_token_id = vocab.ends[0] if vocab.ends else vocab.size, None
        self.tokens = [vocab.piece(token) for token in range(vocab.size)]
        self.special_token_ids = [token for token, piece in enumerate(self.tokens) if not piece]
        self._ids = {piece: token for token, piece in enumerate(self.tokens) if piece}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        """How the model would write a text that has to follow; by its longest tokens where its own way adds blanks."""
        ids = list(self._vocab.tokenize(text, add_special=False, parse_special=False))
        return ids if b"".join(map(self.tokens.__getitem__, ids)) == text else self._by_length(text)

    def _by_length(self, text: bytes) -> list[int]:
        ids = []
        while text:
            lengths = range(min(self._longest, len(text)), 0, -1)
            n = next((n for n in lengths if text[:n] in self._ids), 0)
            if not n:
                break
            ids.append(self._ids[text[:n]])
            text = text[n:]
        return ids


@lru_cache(maxsize=16)
def compiled(text: str, where: str) -> str:
    """A schema as llguidance's grammar; rows of a batch often share one. Raises UsageError as `JsonSchema` does."""
    schema = read_schema(text, where)
    if found := misspelled(schema):
        raise UsageError(f"{where}: {found}")
    if fault := _with_a_deep_stack(lambda: _placed_fault(schema)):
        raise UsageError(f"{where}: {fault}")
    return _grammar(schema)


def _placed_fault(schema: Schema) -> str:
    fault = _fault(schema)
    return fault and f"{place_of(schema, lambda part: _fault(part) == fault)}: cannot be enforced: {fault}"


def _grammar(schema: Schema) -> str:
    return LLMatcher.grammar_from_json_schema(schema, overrides=OPTIONS)


def _fault(schema: Schema) -> str:
    """Why llguidance does not take a schema; empty if it does."""
    try:
        is_error, words = LLMatcher.validate_grammar_with_warnings(_grammar(schema))
    except ValueError as error:
        return _plain(str(error))
    return _plain(words[0]) if words else "no reason given" if is_error else ""


def _with_a_deep_stack(work: Callable[[], T]) -> T:
    """The result of work, done by a thread that may recurse as deep as any schema that `read_schema` lets pass."""
    results: list[T] = []
    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return results[0]


def _plain(words: str) -> str:
    """llguidance's words in one line, without the state that it appends."""
    return " ".join(words.partition("<state>")[0].split())
