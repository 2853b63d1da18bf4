"""What a GGUF file says of itself, read before llama.cpp would stop the process over it."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spec_cli.errors import FileError
from spec_cli.llama.log import C

MOST_LAYERS = 512  # LLAMA_MAX_LAYERS
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # enum gguf_type


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def _library() -> Any:
    """ggml's gguf_* functions (gguf.h), which the binding leaves out."""
    lib, pointer, text, index = C.llama_cpp._lib, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    for name, arguments, result in (
        ("gguf_init_from_file", [text, _InitParams], pointer),
        ("gguf_free", [pointer], None),
        ("gguf_find_key", [pointer, text], index),
        ("gguf_get_kv_type", [pointer, index], ctypes.c_int),
        ("gguf_get_val_u32", [pointer, index], ctypes.c_uint32),
        ("gguf_get_val_f32", [pointer, index], ctypes.c_float),
        ("gguf_get_val_str", [pointer, index], text),
        ("gguf_get_arr_type", [pointer, index], ctypes.c_int),
        ("gguf_get_arr_n", [pointer, index], ctypes.c_size_t),
        ("gguf_get_arr_data", [pointer, index], pointer),
        ("gguf_get_n_tensors", [pointer], index),
        ("gguf_get_tensor_name", [pointer, index], text),
        ("gguf_find_tensor", [pointer, text], index),
        ("gguf_get_tensor_type", [pointer, index], ctypes.c_int),
        ("gguf_get_tensor_size", [pointer, index], ctypes.c_size_t),
        ("gguf_get_tensor_offset", [pointer, index], ctypes.c_size_t),
        ("gguf_get_data_offset", [pointer], ctypes.c_size_t),
        ("ggml_row_size", [ctypes.c_int, index], ctypes.c_size_t),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


class Gguf:
    """An open header. overrides: values that stand for its own (--override-kv)."""

    def __init__(self, path: Path, handle: int, lib: Any, overrides: Mapping[str, object]) -> None:
        self.path, self._handle, self._lib, self._overrides = path, handle, lib, overrides
        self.arch = (self.value("general.architecture", STRING) or b"").decode("utf-8", "replace")

    def value(self, key: str, kind: int = UINT32) -> Any:
        """A value of this type; None where there is none."""
        given = self._overrides.get(key)
        if type(given) is {UINT32: int, FLOAT32: float, STRING: str}[kind]:
            return given.encode() if isinstance(given, str) else given
        at = self._lib.gguf_find_key(self._handle, key.encode())
        if at < 0 or self._lib.gguf_get_kv_type(self._handle, at) != kind:
            return None
        get = {
            UINT32: self._lib.gguf_get_val_u32,
            FLOAT32: self._lib.gguf_get_val_f32,
            STRING: self._lib.gguf_get_val_str,
        }[kind]
        return get(self._handle, at)

    def integers(self, key: str) -> list[int] | None:
        """An array of 32-bit integers or truth values, or a single one; None where there is none."""
        at = self._lib.gguf_find_key(self._handle, key.encode())
        if key in self._overrides or at < 0 or self._lib.gguf_get_kv_type(self._handle, at) != ARRAY:
            one = self.value(key)
            return None if one is None else [one]
        numbers: dict[int, Any] = {UINT32: ctypes.c_uint32, INT32: ctypes.c_int32, BOOL: ctypes.c_bool}
        number = numbers.get(self._lib.gguf_get_arr_type(self._handle, at))
        if number is None:
            return None
        n, data = self._lib.gguf_get_arr_n(self._handle, at), self._lib.gguf_get_arr_data(self._handle, at)
        return list((number * n).from_address(data))

    @property
    def tensors(self) -> Iterator[str]:
        """Their names."""
        for i in range(self._lib.gguf_get_n_tensors(self._handle)):
            yield self._lib.gguf_get_tensor_name(self._handle, i).decode("utf-8", "replace")

    def _find(self, tensor: str) -> int:
        return int(self._lib.gguf_find_tensor(self._handle, tensor.encode()))

    def has(self, tensor: str) -> bool:
        """Whether there is such a tensor."""
        return self._find(tensor) >= 0

    def tensor_type(self, tensor: str) -> int:
        """Its ggml_type."""
        return int(self._lib.gguf_get_tensor_type(self._handle, self._find(tensor)))

    def rows(self, tensor: str, width: int) -> int:
        """How many rows of this many values it has."""
        row = self._lib.ggml_row_size(self.tensor_type(tensor), width)
        return int(self._lib.gguf_get_tensor_size(self._handle, self._find(tensor)) // row)

    def int64(self, tensor: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The values of a small I64 tensor, read from the file."""
        at = self._find(tensor)
        offset = self._lib.gguf_get_data_offset(self._handle) + self._lib.gguf_get_tensor_offset(self._handle, at)
        return np.fromfile(self.path, np.int64, self._lib.gguf_get_tensor_size(self._handle, at) // 8, offset=offset)


@contextmanager
def opened(path: Path, overrides: Mapping[str, object] | None = None) -> Iterator[Gguf | None]:
    """A file's header; None where llama.cpp cannot read it, and will say why."""
    lib = _library()
    handle = lib.gguf_init_from_file(os.fsencode(path), _InitParams(True, None))
    try:
        yield Gguf(path, handle, lib, overrides or {}) if handle else None
    finally:
        if handle:
            lib.gguf_free(handle)


@dataclass(frozen=True)
class Header:
    """What decides how a file can be used.

    is_model: it has layers of its own. n_heads: multi-token-prediction blocks whose weights it holds;
    width: values of the hidden states that it gives or takes; n_ctx: tokens of context that it was made for, 0 unknown.
    """

    path: Path
    arch: str = ""
    is_model: bool = True
    n_heads: int = 0
    width: int = 0
    n_ctx: int = 0


def check_file(path: Path, role: str, overrides: Mapping[str, object] | None = None) -> Header:
    """Look at a model file before C sees it. overrides: of its metadata.

    Raises FileError for what is no GGUF file, and for what ends in an assertion or a bad pointer
    inside llama.cpp.
    """
    try:
        if path.exists() and not path.is_file():
            kind = "a directory" if path.is_dir() else "no regular file"
            raise FileError(f"{role} model {path} is {kind}, not a GGUF file")
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise FileError(f"{role} model {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{role} model {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if magic != b"GGUF":
        raise FileError(f"{role} model {path} is not a GGUF file (it starts with {magic!r})")
    with opened(path, overrides) as header:
        return _checked(header, f"{role} model {path}", role == "target") if header else Header(path)


def _checked(header: Gguf, name: str, target: bool) -> Header:
    arch, layers = header.arch, header.value(f"{header.arch}.block_count")
    if layers is not None and not 1 <= layers <= MOST_LAYERS:
        raise FileError(f"{name} says it has {layers} layers ({arch}.block_count; 1 to {MOST_LAYERS} can be)")
    for kind in ("layer_norm_rms_epsilon", "layer_norm_epsilon"):
        epsilon = header.value(f"{arch}.attention.{kind}", FLOAT32)
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
            raise FileError(f"{name} has a damaged header: {arch}.attention.{kind} is {epsilon}")
    nextn = header.value(f"{arch}.nextn_predict_layers") or 0
    if not 0 <= nextn <= (layers or 0):
        raise FileError(f"{name} says that {nextn} of its {layers} layers predict tokens ({arch}.nextn_predict_layers)")
    if nextn or not target:
        _check_numbers(header, name)
    names = list(header.tensors) if nextn else []
    first = any(tensor.startswith("blk.0.") for tensor in names)
    is_model = not nextn or (first and nextn < (layers or 0))
    n_heads = nextn if any(".nextn." in tensor or tensor.startswith("nextn.") for tensor in names) else 0
    if not is_model and target:
        raise FileError(f"{name} holds multi-token-prediction layers only, no model of its own")
    if not is_model and not n_heads:
        raise FileError(f"{name} says that it has multi-token-prediction layers only, and has none")
    if n_heads and arch != "gemma4-assistant":
        parts = ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm"]
        parts += ["attn_qkv", "ffn_gate", "ffn_up", "ffn_down"] if arch == "mimo2" else []
        for tensor in (f"blk.{i}.{part}.weight" for i in range(layers - nextn, layers) for part in parts):
            if not header.has(tensor):
                raise FileError(f"{name} says that it has {nextn} multi-token-prediction layers, and has no {tensor}")
    return Header(
        header.path,
        arch,
        is_model,
        n_heads,
        width=header.value(f"{arch}.embedding_length_out") or header.value(f"{arch}.embedding_length") or 0,
        n_ctx=header.value(f"{arch}.context_length") or 0,
    )


def _check_numbers(header: Gguf, name: str) -> None:
    """Values over which llama.cpp stops, or never does."""
    arch = header.arch

    def damaged(key: str, value: object) -> FileError:
        return FileError(f"{name} has a damaged header: {arch}.{key} is {value}")

    for suffix in ("", "_swa"):
        key = f"rope.dimension_count{suffix}"
        rope = header.value(f"{arch}.{key}")
        size = header.value(f"{arch}.attention.key_length{suffix}")
        if rope is not None and (rope < 2 or rope % 2 or (size is not None and rope > size)):
            raise damaged(key, rope)
    scaling = header.value(f"{arch}.rope.scaling.type", STRING)
    if scaling is not None and scaling not in (b"none", b"linear", b"yarn", b"longrope"):
        raise damaged("rope.scaling.type", scaling.decode("utf-8", "replace"))
    experts, used = header.value(f"{arch}.expert_count"), header.integers(f"{arch}.expert_used_count")
    if experts and not 0 < max(used or [0]) <= experts:
        raise damaged("expert_count", f"{experts}, and expert_used_count {max(used) if used else 'missing'}")
