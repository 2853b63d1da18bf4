"""What a GGUF file says of itself, read before llama.cpp would stop the process over it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spec_cli.apart import at
from spec_cli.errors import FileError
from spec_cli.llama.context import gpu_offload
from spec_cli.llama.gguf import FLOAT32, Gguf, opened

MOST_LAYERS = 512  # LLAMA_MAX_LAYERS
F32 = 0  # enum ggml_type
NO_WEIGHTS = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
VECTORS = ("norm.weight", "norm_2.weight", ".bias")  # are added and multiplied, not matrices


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
    at(f"{role} model {path}")
    with opened(path, overrides, role) as header:
        header.require_whole(role)
        return _checked(header, f"{role} model {path}", role == "target")


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
    _check_rope(header, name, 2 if nextn or not target else 0)
    _check_types(header, name)
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


def _check_rope(header: Gguf, name: str, least: int) -> None:
    """Rotated dimensions that no kernel takes: odd ones, or more than a head has."""
    arch = header.arch
    for suffix in ("", "_swa"):
        size, key = header.value(f"{arch}.attention.key_length{suffix}"), f"{arch}.rope.dimension_count{suffix}"
        rope = header.value(key)
        if rope is None and size is not None:
            rope = header.value(f"{arch}.rope.dimension_count")
        if rope is not None and (rope < least or rope % 2 or (size is not None and rope > size)):
            of = f" of {size}" if size is not None and rope > size else ""
            raise FileError(f"{name} has a damaged header: {key} is {rope}{of}")
    sections = header.integers(f"{arch}.rope.dimension_sections") or []
    heads = header.value(f"{arch}.attention.head_count")
    size = header.value(f"{arch}.attention.key_length")
    if size is None and heads:
        size = (header.value(f"{arch}.embedding_length") or 0) // heads
    if size and (min(sections, default=0) < 0 or sum(sections) > size):
        raise FileError(f"{name} has a damaged header: {arch}.rope.dimension_sections are {sections} of {size}")


def _check_types(header: Gguf, name: str) -> None:
    """Tensors of types that no kernel multiplies with."""
    for tensor in header.tensors:
        kind = header.tensor_type(tensor)
        if kind in NO_WEIGHTS and not tensor.startswith("d2t") and "tid2eid" not in tensor:
            raise FileError(f"{name}: its {tensor} is of type {NO_WEIGHTS[kind]}, which is none for weights")
        if kind != F32 and tensor.endswith(VECTORS) and not gpu_offload():  # some GPU kernels take others
            raise FileError(f"{name}: its {tensor} is not of type F32")
