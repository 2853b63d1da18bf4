"""Hidden states: what heads read of a target, and where llama.cpp keeps it after a decode (src/llama-ext.h)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence as Seq
from functools import cache
from typing import Any

import numpy as np

from spec_cli.errors import BackendError
from spec_cli.llama.log import C
from spec_cli.llama.model import Model
from spec_cli.llama.view import view

Rows = np.ndarray[Any, np.dtype[np.float32]]

# Architectures whose graph makes what is read (src/models of llama.cpp 0c1e57098): others leave zeros or abort.
NEXTN_STATES = frozenset({
    "bailingmoe3", "cohere2moe", "deepseek2", "deepseek2-ocr", "deepseek32", "deepseek4", "gemma4", "glm-dsa",
    "glm4moe", "glm5-next", "gpt-oss", "hy_v3", "mimo2", "mistral4", "nemotron_h", "nemotron_h_moe", "qwen35",
    "qwen35moe", "qwen3next", "step35",
})  # fmt: skip
LAYER_INPUTS = frozenset({
    "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama",
    "llama-embed", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe",
    "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp",
})  # fmt: skip

_CTX, _FLOATS = ctypes.c_void_p, ctypes.c_void_p
_SYMBOLS: dict[str, tuple[tuple[str, ...], list[Any], Any]] = {
    "llama_set_embeddings_nextn": (
        (
            "_Z26llama_set_embeddings_nextnP13llama_contextbb",
            "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        ),
        [_CTX, ctypes.c_bool, ctypes.c_bool], None,
    ),
    "llama_get_embeddings_nextn": (
        ("_Z26llama_get_embeddings_nextnP13llama_context", "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z"),
        [_CTX], _FLOATS,
    ),
    "llama_get_embeddings_nextn_ith": (
        (
            "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
            "?llama_get_embeddings_nextn_ith@@YAPEAMPEAUllama_context@@H@Z",
        ),
        [_CTX, ctypes.c_int32], _FLOATS,
    ),
    "llama_set_embeddings_layer_inp": (
        (
            "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        ),
        [_CTX, ctypes.c_uint32, ctypes.c_bool], None,
    ),
    "llama_get_embeddings_layer_inp": (
        (
            "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
            "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ),
        [_CTX, ctypes.c_uint32], _FLOATS,
    ),
    "llama_set_nextn_layer_offset": (
        (
            "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
            "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
        ),
        [_CTX, ctypes.c_int32], None,
    ),
    "llama_get_ctx_other": (
        ("_Z19llama_get_ctx_otherP13llama_context", "?llama_get_ctx_other@@YAPEAUllama_context@@PEAU1@@Z"),
        [_CTX], ctypes.c_void_p,
    ),
}  # fmt: skip


@cache
def symbol(name: str) -> Any:
    """A function of llama-ext.h, under the name that the compiler of this build gave it. Raises BackendError."""
    compiled, arguments, result = _SYMBOLS[name]
    for each in (name, *compiled):
        function = getattr(C.llama_cpp._lib, each, None)
        if function is not None:
            function.argtypes, function.restype = arguments, result
            return function
    raise BackendError(f"this build of llama.cpp does not export {name}, which draft-mtp and draft-eagle3 need")


def _made(pointer: int | None) -> int:
    if not pointer:
        raise BackendError("llama.cpp has no hidden states for this decode")
    return pointer


def _floats(pointer: int | None, *shape: int) -> Rows:
    return view(_made(pointer), math.prod(shape)).reshape(shape)


def row(ctx: int, index: int, width: int) -> Rows:
    """float32 [width], a copy: what one output row of a head's decode leaves for the next token."""
    return _floats(symbol("llama_get_embeddings_nextn_ith")(ctx, index), width).copy()


def copy_row(ctx: int, index: int, address: int, width: int) -> None:
    """The same, to where it is needed."""
    ctypes.memmove(address, _made(symbol("llama_get_embeddings_nextn_ith")(ctx, index)), 4 * width)


def dense(ctx: int, n: int) -> Rows:
    """float32 [n, width], a view: such rows of all n tokens."""
    width: int = C.llama_model_n_embd_out(C.llama_get_model(ctx))
    return _floats(symbol("llama_get_embeddings_nextn")(ctx), n, width)


def source(ctx: int, model: Model, layers: Seq[int]) -> Callable[[int], Rows]:
    """Make a context keep hidden states; the function gives those of the newest decode's n tokens, in batch order.

    layers: their inputs side by side, the number of layers standing for the last one's output; without
    any, the state that NextN layers start from. Such a model must make them: see `NEXTN_STATES`, `LAYER_INPUTS`.
    """
    n_layer, width = int(C.llama_model_n_layer(model.handle)), int(C.llama_model_n_embd(model.handle))
    for layer in layers:
        if layer < n_layer:
            symbol("llama_set_embeddings_layer_inp")(ctx, layer, True)
    if not layers or n_layer in layers:
        symbol("llama_set_embeddings_nextn")(ctx, True, False)
    if not layers:
        return lambda n: dense(ctx, n)

    def read(n: int) -> Rows:
        get = symbol("llama_get_embeddings_layer_inp")
        parts = [_floats(get(ctx, layer), n, width) if layer < n_layer else dense(ctx, n) for layer in layers]
        return np.concatenate(parts, axis=1)

    return read
