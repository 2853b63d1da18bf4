"""GGUF files as they come out of broken downloads, wrong converters and bad will: one change each, by chance."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}  # gguf_type
STRING, ARRAY, ALIGNMENT = 8, 9, 32
NUMBERS = [0, 1, 2, 3, 7, 64, 255, 256, 4096, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
NUMBERS += [(1 << 63) - 1, (1 << 64) - 1]
FRACTIONS = [float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e38, 1e-38, 0.5]
WORDS = [
    b"", b"none", b"no_vocab", b"bert", b"gpt2", b"t5", b"rwkv", b"plamo2", b"llama", b"gemma4", b"mamba", b"qwen35",
    b"mimo2", b"eagle3", b"clip", b"yarn", b"longrope", b"default", b"gpt-2", b"llama-bpe", b"\xff\xfe",
    b"a\0b", b"x" * 99,
]  # fmt: skip


@dataclass
class Key:
    name: bytes
    kind: int
    value: Any
    each: int = 0  # type of an array's elements


@dataclass
class Tensor:
    name: bytes
    dims: list[int]
    kind: int
    offset: int


@dataclass
class File:
    """A GGUF taken apart."""

    keys: list[Key] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = b""
    counts: tuple[int, int] | None = None  # tensors and keys, if the header lies about them
    version: int = 3

    @classmethod
    def read(cls, raw: bytes) -> File:
        at = 0

        def take(code: str) -> Any:
            nonlocal at
            (value,) = struct.unpack_from("<" + code, raw, at)
            at += struct.calcsize("<" + code)
            return value

        def text() -> bytes:
            n = take("Q")
            return bytes(take(f"{n}s"))

        def value(kind: int) -> Any:
            return text() if kind == STRING else take(SIZES[kind])

        assert take("4s") == b"GGUF"
        file = cls(version=take("I"))
        n_tensors, n_keys = take("Q"), take("Q")
        for _ in range(n_keys):
            name, kind = text(), take("I")
            if kind == ARRAY:
                each, n = take("I"), take("Q")
                file.keys.append(Key(name, kind, [value(each) for _ in range(n)], each))
            else:
                file.keys.append(Key(name, kind, value(kind)))
        for _ in range(n_tensors):
            name, n = text(), take("I")
            file.tensors.append(Tensor(name, [take("Q") for _ in range(n)], take("I"), take("Q")))
        file.data = raw[-(-at // ALIGNMENT) * ALIGNMENT :]
        return file

    def bytes(self) -> tuple[bytes, int]:
        """The file, and how long its header is."""

        def text(t: bytes) -> bytes:
            return struct.pack("<Q", len(t)) + t

        def value(kind: int, v: Any) -> bytes:
            if kind == STRING:
                return text(v if isinstance(v, bytes) else b"%d" % v)
            code = SIZES.get(kind, "I")
            v = 1 if isinstance(v, bytes) else v
            if code in "fd":
                return struct.pack("<" + code, float(v) if abs(v) < 3e38 or v != v else float("inf"))
            if v != v or abs(v) == float("inf"):
                v = 0
            size = struct.calcsize(code)
            return (int(v) & ((1 << 8 * size) - 1)).to_bytes(size, "little")

        n_tensors, n_keys = self.counts or (len(self.tensors), len(self.keys))
        out = bytearray(b"GGUF" + struct.pack("<IQQ", self.version, n_tensors, n_keys))
        for key in self.keys:
            out += text(key.name) + struct.pack("<I", key.kind)
            if key.kind == ARRAY:
                values = key.value if isinstance(key.value, list) else [key.value]
                out += struct.pack("<IQ", key.each, len(values)) + b"".join(value(key.each, v) for v in values)
            else:
                one = key.value if not isinstance(key.value, list) else (key.value or [0])[0]
                out += value(key.kind, one)
        for t in self.tensors:
            out += text(t.name) + struct.pack("<I", len(t.dims))
            out += b"".join(struct.pack("<Q", d) for d in t.dims) + struct.pack("<IQ", t.kind, t.offset)
        n = len(out)
        return bytes(out) + b"\0" * (-n % ALIGNMENT) + self.data, n


def _value(file: File, r: random.Random) -> None:
    key = r.choice([k for k in file.keys if k.kind != ARRAY])
    key.value = _other(key.kind, r)


def _other(kind: int, r: random.Random) -> Any:
    if kind == STRING:
        return r.choice(WORDS)
    return r.choice(FRACTIONS) if SIZES.get(kind, "I") in "fd" else r.choice(NUMBERS)


def _array(file: File, r: random.Random) -> None:
    arrays = [k for k in file.keys if k.kind == ARRAY]
    if not arrays:
        _value(file, r)
        return
    key = r.choice(arrays)
    n, how = len(key.value), r.randrange(5)
    if how == 0:
        del key.value[r.randrange(n + 1) :]
    elif how == 1:
        key.value += key.value[: r.randrange(n + 1)]
    elif how == 2 and n:
        key.value[r.randrange(n)] = key.value[r.randrange(n)]
    elif how == 3 and n:
        key.value[r.randrange(n)] = _other(key.each, r)
    else:
        key.each = r.choice([*SIZES, STRING])


def _type(file: File, r: random.Random) -> None:
    r.choice(file.keys).kind = r.choice([*SIZES, STRING, ARRAY, 13, 1 << 31])


def _absent(file: File, r: random.Random) -> None:
    del file.keys[r.randrange(len(file.keys))]


def _more(file: File, r: random.Random) -> None:
    """A key that such models have elsewhere."""
    arch = next((k.value for k in file.keys if k.name == b"general.architecture"), b"llama")
    name, kind = r.choice([
        (b"%s.expert_count", 4), (b"%s.expert_used_count", 4), (b"%s.expert_group_count", 4), (b"%s.vocab_size", 4),
        (b"%s.rope.scaling.type", 8), (b"%s.rope.scaling.factor", 6), (b"%s.rope.freq_base", 6),
        (b"%s.rope.dimension_count", 4), (b"%s.attention.sliding_window", 4), (b"%s.attention.causal", 7),
        (b"%s.pooling_type", 4), (b"%s.nextn_predict_layers", 4), (b"%s.attention.head_count_kv", 4),
        (b"%s.attention.key_length", 4), (b"%s.attention.value_length", 4), (b"%s.logit_scale", 6),
        (b"%s.attention.max_alibi_bias", 6), (b"%s.attention.clamp_kqv", 6), (b"%s.use_parallel_residual", 7),
        (b"%s.embedding_length_out", 4), (b"%s.leading_dense_block_count", 4), (b"%s.expert_feed_forward_length", 4),
        (b"%s.attention.kv_lora_rank", 4), (b"%s.rope.dimension_sections", 4), (b"%s.decoder_start_token_id", 4),
        (b"tokenizer.ggml.bos_token_id", 4), (b"tokenizer.ggml.eos_token_id", 4), (b"tokenizer.ggml.pre", 8),
        (b"tokenizer.ggml.eot_token_id", 4), (b"tokenizer.ggml.unknown_token_id", 4), (b"tokenizer.ggml.model", 8),
        (b"tokenizer.ggml.add_bos_token", 7), (b"tokenizer.ggml.add_eos_token", 7),
        (b"tokenizer.ggml.add_space_prefix", 7), (b"tokenizer.ggml.fim_pre_token_id", 4), (b"split.count", 2),
        (b"split.no", 2), (b"general.alignment", 4), (b"tokenizer.ggml.precompiled_charsmap", 8),
    ])  # fmt: skip
    name = name % arch if b"%" in name else name
    file.keys = [k for k in file.keys if k.name != name]
    file.keys.append(Key(name, kind, _other(kind, r)))


def _tensor(file: File, r: random.Random) -> None:
    tensor, how = r.choice(file.tensors), r.randrange(7)
    if how == 0:
        tensor.dims[r.randrange(len(tensor.dims))] = r.choice([*NUMBERS, 32, 96])
    elif how == 1:
        tensor.kind = r.randrange(42)
    elif how == 2:
        tensor.offset = r.choice([*NUMBERS, tensor.offset + 1, tensor.offset + 32])
    elif how == 3:
        file.tensors.remove(tensor)
    elif how == 4:
        tensor.name = r.choice(file.tensors).name
    elif how == 5:
        tensor.dims = tensor.dims[::-1]
    else:
        tensor.dims = r.choice([[], [1], tensor.dims[:1], [*tensor.dims, 2], [*tensor.dims, 1, 1, 1, 1]])


def _lie(file: File, r: random.Random) -> None:
    n = [len(file.tensors), len(file.keys)]
    n[r.randrange(2)] = r.choice([*NUMBERS, n[0] - 1, n[1] + 1])
    file.counts = n[0] & ((1 << 64) - 1), n[1] & ((1 << 64) - 1)


CHANGES: list[Callable[[File, random.Random], None]] = [_value, _value, _array, _type, _absent, _more, _more]
CHANGES += [_tensor, _tensor, _lie]


def mutant(file: File, r: random.Random) -> tuple[str, bytes]:
    """A changed copy of a file, and what was done to it."""
    how = r.randrange(len(CHANGES) + 3)
    if how < len(CHANGES):
        changed = copy.deepcopy(file)
        CHANGES[how](changed, r)
        if r.random() < 0.2:
            r.choice(CHANGES)(changed, r)
        return CHANGES[how].__name__, changed.bytes()[0]
    raw, n = file.bytes()
    if how == len(CHANGES):
        return "cut", raw[: r.randrange(n) if r.random() < 0.5 else r.randrange(len(raw))]
    data = bytearray(raw)
    for _ in range(r.choice([1, 1, 2, 8])):
        data[r.randrange(n)] = r.randrange(256)
    return "flip", bytes(data)
