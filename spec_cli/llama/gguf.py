"""The header of a GGUF file, over all shards of a model, as ggml reads it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence as Seq
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spec_cli.errors import FileError
from spec_cli.llama import log
from spec_cli.llama.log import C
from spec_cli.shards import shards_of

UINT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9  # enum gguf_type
ALIGNMENT = 32  # TENSOR_ALIGNMENT, bytes


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
        ("gguf_get_val_u16", [pointer, index], ctypes.c_uint16),
        ("gguf_get_val_i32", [pointer, index], ctypes.c_int32),
        ("gguf_get_val_f32", [pointer, index], ctypes.c_float),
        ("gguf_get_val_str", [pointer, index], text),
        ("gguf_get_arr_type", [pointer, index], ctypes.c_int),
        ("gguf_get_arr_n", [pointer, index], ctypes.c_size_t),
        ("gguf_get_arr_str", [pointer, index, ctypes.c_size_t], text),
        ("gguf_get_arr_data", [pointer, index], pointer),
        ("gguf_get_n_tensors", [pointer], index),
        ("gguf_get_tensor_name", [pointer, index], text),
        ("gguf_get_tensor_type", [pointer, index], ctypes.c_int),
        ("gguf_get_tensor_size", [pointer, index], ctypes.c_size_t),
        ("gguf_get_tensor_offset", [pointer, index], ctypes.c_size_t),
        ("gguf_get_data_offset", [pointer], ctypes.c_size_t),
        ("ggml_row_size", [ctypes.c_int, index], ctypes.c_size_t),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


class _File:
    """One open file: a model, or a shard of one."""

    def __init__(self, path: Path, handle: int, lib: Any) -> None:
        self.path, self.handle, self.lib = path, handle, lib
        self.n_tensors: int = lib.gguf_get_n_tensors(handle)

    def value(self, key: str, kind: int) -> Any:
        at = self.lib.gguf_find_key(self.handle, key.encode())
        if at < 0 or self.lib.gguf_get_kv_type(self.handle, at) != kind:
            return None
        get = {
            UINT16: self.lib.gguf_get_val_u16,
            UINT32: self.lib.gguf_get_val_u32,
            INT32: self.lib.gguf_get_val_i32,
            FLOAT32: self.lib.gguf_get_val_f32,
            STRING: self.lib.gguf_get_val_str,
        }[kind]
        return get(self.handle, at)

    def tensor(self, i: int) -> str:
        return str(self.lib.gguf_get_tensor_name(self.handle, i).decode("utf-8", "replace"))

    def offset(self, i: int) -> int:
        """Where a tensor's data begin, in bytes."""
        start = self.lib.gguf_get_data_offset(self.handle)
        return int(start + self.lib.gguf_get_tensor_offset(self.handle, i))

    def require_whole(self, name: str) -> None:
        """Raises FileError for a file that ends before its last tensor does, or whose data begin where none can."""
        size = self.lib.gguf_get_tensor_size
        need = max((self.offset(i) + size(self.handle, i) for i in range(self.n_tensors)), default=0)
        if (has := self.path.stat().st_size) < need:
            raise FileError(f"{name} is cut short: its tensors need {need} bytes, it has {has}; download it again")
        if any(self.offset(i) % ALIGNMENT for i in range(self.n_tensors)):
            raise FileError(f"{name} has tensors at odd places: general.alignment is no multiple of {ALIGNMENT}")


class Gguf:
    """An open header: the metadata of the first file, the tensors of all.

    overrides: values that stand for its own (--override-kv).
    """

    def __init__(self, files: Seq[_File], overrides: Mapping[str, object]) -> None:
        self._first, self._files, self._overrides = files[0], files, overrides
        self.path, self._lib = self._first.path, self._first.lib
        self.arch = (self.value("general.architecture", STRING) or b"").decode("utf-8", "replace")

    def value(self, key: str, kind: int = UINT32) -> Any:
        """A value of this type; None where there is none."""
        given = self._overrides.get(key)
        if type(given) is {UINT32: int, FLOAT32: float, STRING: str}[kind]:
            return given.encode() if isinstance(given, str) else given
        return self._first.value(key, kind)

    def integers(self, key: str) -> list[int] | None:
        """An array of 32-bit integers or truth values, or a single one; None where there is none."""
        numbers: dict[int, Any] = {UINT32: ctypes.c_uint32, INT32: ctypes.c_int32, BOOL: ctypes.c_bool}
        at = self._array(key)
        if at is None:
            one = self.value(key)
            return None if one is None else [one]
        number = numbers.get(self._lib.gguf_get_arr_type(self._first.handle, at))
        if number is None:
            return None
        n, data = (get(self._first.handle, at) for get in (self._lib.gguf_get_arr_n, self._lib.gguf_get_arr_data))
        return list((number * n).from_address(data)) if n else []

    def texts(self, key: str) -> list[bytes]:
        """An array of texts, each up to its first NUL; empty where there is none."""
        at = self._array(key)
        if at is None or self._lib.gguf_get_arr_type(self._first.handle, at) != STRING:
            return []
        n = self._lib.gguf_get_arr_n(self._first.handle, at)
        return [self._lib.gguf_get_arr_str(self._first.handle, at, i) for i in range(n)]

    def _array(self, key: str) -> int | None:
        at = int(self._lib.gguf_find_key(self._first.handle, key.encode()))
        is_one = key not in self._overrides and at >= 0
        return at if is_one and self._lib.gguf_get_kv_type(self._first.handle, at) == ARRAY else None

    @cached_property
    def _places(self) -> dict[str, tuple[_File, int]]:
        return {file.tensor(i): (file, i) for file in self._files for i in range(file.n_tensors)}

    @property
    def tensors(self) -> Iterable[str]:
        """Their names."""
        return self._places.keys()

    def has(self, tensor: str) -> bool:
        """Whether there is such a tensor."""
        return tensor in self._places

    def tensor_type(self, tensor: str) -> int:
        """Its ggml_type."""
        file, i = self._places[tensor]
        return int(self._lib.gguf_get_tensor_type(file.handle, i))

    def rows(self, tensor: str, width: int) -> int:
        """How many rows of this many values it has."""
        file, i = self._places[tensor]
        row = self._lib.ggml_row_size(self.tensor_type(tensor), width)
        return int(self._lib.gguf_get_tensor_size(file.handle, i) // row) if row else 0

    def int64(self, tensor: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The values of a small I64 tensor, read from the file."""
        file, i = self._places[tensor]
        n = self._lib.gguf_get_tensor_size(file.handle, i) // 8
        return np.fromfile(file.path, np.int64, n, offset=file.offset(i))

    def require_whole(self, role: str) -> None:
        """Raises FileError for shards that are cut short, or not of one model."""
        for file in self._files:
            file.require_whole(f"{role} model {file.path}")
        n = sum(file.n_tensors for file in self._files)
        expected = self._first.value("split.tensors.count", INT32) if len(self._files) > 1 else n
        if len(self._places) != n or expected not in (None, n):
            holds = f"hold {n} tensors" if len(self._places) == n else "hold a tensor twice"
            of = "" if expected is None else f" where {expected} should be"
            raise FileError(f"{role} model {self.path}: its shards {holds}{of}: they are not of one model")


@contextmanager
def opened(path: Path, overrides: Mapping[str, object] | None = None, role: str = "draft") -> Iterator[Gguf]:
    """A model's header, all its shards open. Raises FileError for what llama.cpp cannot read."""
    with ExitStack() as stack:
        lib = _library()

        def open_file(file: Path, name: str) -> _File:
            log.forget()
            handle = lib.gguf_init_from_file(os.fsencode(file), _InitParams(True, None))
            if not handle:
                why = log.reason(first=True)
                raise FileError(f"{name} has a header that cannot be read ({why}): download it again")
            stack.callback(lib.gguf_free, handle)
            return _File(file, handle, lib)

        name = f"{role} model {path}"
        files = [open_file(path, name)]
        for i, shard in enumerate(_others(files[0], name), 2):
            files.append(open_file(shard, f"{name}: shard {i}, {shard},"))
            number, count = (files[-1].value(key, UINT16) for key in ("split.no", "split.count"))
            if (number, count) != (i - 1, files[0].value("split.count", UINT16)):
                says = f"it says that it is {(number or 0) + 1} of {count or 1}"
                raise FileError(f"{name}: {shard} is no shard of it: {says}")
        yield Gguf(files, overrides or {})


def _others(first: _File, name: str) -> list[Path]:
    """The shards after the first one."""
    count, number = (first.value(key, UINT16) or 0 for key in ("split.count", "split.no"))
    if count < 2:
        return []
    paths = [Path(shard) for shard in shards_of(str(first.path))]
    if number:
        file = f": {paths[0]}" if len(paths) == count else ""
        raise FileError(f"{name} is shard {number + 1} of {count}: give the first shard{file}")
    if len(paths) != count:
        ending = f"-00001-of-{count:05d}.gguf"
        raise FileError(f"{name} is the first of {count} shards, which are found by its name: it must end in {ending}")
    missing = [(i, shard) for i, shard in enumerate(paths, 1) if not shard.is_file()]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise FileError(f"{name}: shard {missing[0][0]} of {count} is missing: {missing[0][1]}{more}")
    return paths[1:]
