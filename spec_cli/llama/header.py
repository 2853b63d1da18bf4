"""What a GGUF file says of itself, read before llama.cpp would stop the process over it."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from typing import Any

from spec_cli.errors import FileError
from spec_cli.llama.log import C

MOST_LAYERS = 512  # LLAMA_MAX_LAYERS
UINT32, FLOAT32, STRING = 4, 6, 8  # enum gguf_type


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
        ("gguf_get_n_tensors", [pointer], index),
        ("gguf_get_tensor_name", [pointer, index], text),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


def check_file(path: Path, role: str) -> None:
    """Look at a model file before C sees it.

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
    _check_header(path, role)


def _check_header(path: Path, role: str) -> None:
    lib = _library()
    header = lib.gguf_init_from_file(os.fsencode(path), _InitParams(True, None))
    if not header:
        return  # llama.cpp will say why
    try:
        _check(lib, header, f"{role} model {path}")
    finally:
        lib.gguf_free(header)


def _check(lib: Any, header: int, name: str) -> None:
    def value(key: str, kind: int) -> Any:
        at = lib.gguf_find_key(header, key.encode())
        if at < 0 or lib.gguf_get_kv_type(header, at) != kind:
            return None
        return {UINT32: lib.gguf_get_val_u32, FLOAT32: lib.gguf_get_val_f32, STRING: lib.gguf_get_val_str}[kind](
            header, at
        )

    arch = (value("general.architecture", STRING) or b"").decode("utf-8", "replace")
    layers = value(f"{arch}.block_count", UINT32)
    if layers is not None and not 1 <= layers <= MOST_LAYERS:
        raise FileError(f"{name} says it has {layers} layers ({arch}.block_count; 1 to {MOST_LAYERS} can be)")
    for kind in ("layer_norm_rms_epsilon", "layer_norm_epsilon"):
        epsilon = value(f"{arch}.attention.{kind}", FLOAT32)
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
            raise FileError(f"{name} has a damaged header: {arch}.attention.{kind} is {epsilon}")
    if value(f"{arch}.nextn_predict_layers", UINT32):
        tensors = (lib.gguf_get_tensor_name(header, i) for i in range(lib.gguf_get_n_tensors(header)))
        if not any(tensor.startswith(b"blk.0.") for tensor in tensors):
            raise FileError(f"{name} holds multi-token-prediction layers only, no model of its own")
