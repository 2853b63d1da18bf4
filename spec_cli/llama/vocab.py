"""Token ids, their text, and whether two vocabularies may speculate together."""

from __future__ import annotations

import ctypes
from array import array
from contextlib import suppress
from functools import cached_property

from spec_cli.errors import FileError, UsageError
from spec_cli.llama.log import C
from spec_cli.tokens import tokens

TYPES = {0: "none", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLAMO2"}  # enum llama_vocab_type
NONE, SPM = 0, 1
MAX_SIZE_DIFFERENCE = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
FIRST_COMPARED_ID = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID


class Vocab:
    """The vocabulary of a loaded model (which owns the memory behind it)."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self.size: int = C.llama_vocab_n_tokens(handle)
        self.type: int = C.llama_vocab_type(handle)
        self.bos: int = C.llama_vocab_bos(handle)
        self.eos: int = C.llama_vocab_eos(handle)
        self.add_bos: bool = C.llama_vocab_get_add_bos(handle)
        self.add_eos: bool = C.llama_vocab_get_add_eos(handle)

    @cached_property
    def controls(self) -> list[str]:
        """The texts that `tokenize(parse_special=True)` reads as control tokens, longest first."""
        kinds = C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_UNKNOWN
        ids = (i for i in range(self.size) if C.llama_vocab_get_attr(self.handle, i) & kinds)
        return sorted({text for i in ids if (text := self.text(i))}, key=lambda text: (-len(text), text))

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token's spelling."""
        return max(len(C.llama_vocab_get_text(self.handle, i) or b"") for i in range(self.size))

    @cached_property
    def suppressed(self) -> list[int]:
        """Ids that the model file wants never sampled (tokenizer.ggml.suppress_tokens)."""
        n = ctypes.c_int32()
        ids = C.llama_vocab_get_suppress_tokens(self.handle, ctypes.byref(n))
        return [int(ids[i]) for i in range(n.value)] if ids else []

    @cached_property
    def ends(self) -> list[int]:
        """All ids that end generation."""
        return [i for i in range(self.size) if self.is_end(i)]

    def require_usable(self, name: str) -> None:
        """Raises FileError for a vocabulary that no text can be made of."""
        if not self.size or self.type == NONE:
            raise FileError(f"{name} has no vocabulary (tokenizer.ggml.model)")
        for what, adds, token in (("bos", self.add_bos, self.bos), ("eos", self.add_eos, self.eos)):
            if adds and not 0 <= token < self.size:
                key = f"tokenizer.ggml.{what}_token_id"
                raise FileError(f"{name} adds {what.upper()} to each text, and has no such token ({key})")
        with suppress(UsageError):  # what a tokenizer lacks shows with the first text
            self.tokenize(b"spec A1", add_special=True, parse_special=True)

    def is_end(self, token: int) -> bool:
        """Whether this id ends generation: a model has several of them."""
        return bool(C.llama_vocab_is_eog(self.handle, token))

    def text(self, token: int) -> str:
        """The token as the file spells it, e.g. '<|im_end|>' or 'Ġthe'."""
        if not 0 <= token < self.size:
            return ""
        return (C.llama_vocab_get_text(self.handle, token) or b"").decode("utf-8", "replace")

    def piece(self, token: int, special: bool = False) -> bytes:
        """The bytes that the token stands for; control tokens are empty unless `special`."""
        known = self._pieces.get((token, special))
        if known is None:
            known = self._pieces[token, special] = self._piece(token, special)
        return known

    def _piece(self, token: int, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = C.llama_token_to_piece(self.handle, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    @cached_property
    def _unspelled(self) -> set[int]:
        """Bytes without a token, over which an SPM tokenizer ends the process; other types leave them out."""
        missing = {b"<0x%02X>" % byte: byte for byte in range(256)} if self.type == SPM else {}
        for i in range(self.size):
            if not missing:
                break
            missing.pop(C.llama_vocab_get_text(self.handle, i), None)
        return {byte for byte in missing.values() if bytes([byte]) not in self._texts}

    @cached_property
    def _texts(self) -> set[bytes]:
        return {C.llama_vocab_get_text(self.handle, i) for i in range(self.size)}

    def require_spelling(self, text: bytes, parse_special: bool = False) -> None:
        """Raises UsageError for a character that has no token and whose bytes have none."""
        if not self._unspelled:
            return
        if parse_special:
            for control in self.controls:
                text = text.replace(control.encode(), b"")
        for char in sorted(set(text.decode("utf-8", "replace"))):
            spelled = ("\u2581" if char == " " else char).encode()
            if spelled not in self._texts and not self._unspelled.isdisjoint(spelled):
                raise UsageError(f"the model's vocabulary has no token for {char!r}, nor for its bytes")

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> array[int]:
        """Token ids of UTF-8 text; `parse_special` reads control-token strings as control tokens.

        Raises UsageError for a character that the vocabulary cannot spell.
        """
        self.require_spelling(text, parse_special)
        size = len(text) + 2
        while True:
            buffer = (ctypes.c_int32 * size)()
            n = C.llama_tokenize(self.handle, text, len(text), buffer, size, add_special, parse_special)
            if n >= 0:
                return tokens(buffer[:n])
            size = -n


def require_compatible(target: Vocab, draft: Vocab, target_name: str, draft_name: str) -> None:
    """Refuse a draft whose ids mean other text than the target's.

    llama.cpp's rule (common/speculative.cpp, common_speculative_are_compatible), with its reasons,
    which there are debug messages.
    Raises FileError with the first thing that differs.
    """

    def refuse(what: str) -> FileError:
        return FileError(f"draft model {draft_name} does not fit target {target_name}: {what}")

    if target.type != draft.type:
        ours, theirs = TYPES.get(target.type, str(target.type)), TYPES.get(draft.type, str(draft.type))
        raise refuse(f"vocabulary type {theirs} where the target has {ours}")
    for what, adds, other_adds, id_, other_id in (
        ("BOS", target.add_bos, draft.add_bos, target.bos, draft.bos),
        ("EOS", target.add_eos, draft.add_eos, target.eos, draft.eos),
    ):
        if adds != other_adds or (adds and id_ != other_id):
            say = "adds {what} (id {id})".format
            raise refuse(
                f"it {say(what=what, id=other_id) if other_adds else f'adds no {what}'}, "
                f"the target {say(what=what, id=id_) if adds else f'adds no {what}'}"
            )
    if abs(target.size - draft.size) > MAX_SIZE_DIFFERENCE:
        raise refuse(
            f"{draft.size} tokens where the target has {target.size} (at most {MAX_SIZE_DIFFERENCE} may be missing)"
        )
    text, a, b = C.llama_vocab_get_text, target.handle, draft.handle
    for i in range(FIRST_COMPARED_ID, min(target.size, draft.size)):
        if text(a, i) != text(b, i):
            raise refuse(f"token {i} is {draft.text(i)!r} where the target has {target.text(i)!r}")
