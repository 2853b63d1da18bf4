"""What a context would cost, asked of llama.cpp itself without allocating it."""

from __future__ import annotations

import re
from dataclasses import replace

from spec_cli.apart import at
from spec_cli.llama import log
from spec_cli.llama.context import ContextParams
from spec_cli.llama.head import head_struct
from spec_cli.llama.log import C
from spec_cli.llama.model import Model

_SIZE = re.compile(r"(output|compute) buffer size\s*=\s*([\d.]+) MiB|: size =\s*([\d.]+) MiB \(\s*(\d+) cells")
_MIB = 1 << 20
_PROBE = 1 << 16  # a dry context still books its cells: larger ones are scaled up from this size
_CELL = 64  # bytes of bookkeeping a cell


def context_bytes(dry: Model, params: ContextParams, target: tuple[Model, ContextParams] | None = None) -> int | None:
    """Memory in bytes that a context of these sizes takes, for a model loaded with `dry`; with a target, a head's.

    llama.cpp plans the whole context, cache and compute buffers alike, and logs the sizes.
    None when it refuses (the real creation will say why).
    """
    at(f"{dry.role} model {dry.path}")
    asked = max(params.n_ctx, 256)
    probed = min(asked, max(256, _PROBE // params.n_sequences))
    params, beside = replace(params, n_ctx=probed), None
    if target:
        beside = C.llama_init_from_model(target[0].handle, replace(target[1], n_ctx=probed).c())
        if not beside:
            return None
    with log.capture() as lines:
        ctx = C.llama_init_from_model(dry.handle, head_struct(dry, params, beside) if beside else params.c())
    try:
        if not ctx:
            return None
        cells = C.llama_n_ctx(ctx)
        dry.require_causal(ctx)
    finally:
        for each in (ctx, beside):
            if each:
                C.llama_free(each)
    scale = asked / probed
    total = float(asked * params.n_sequences * _CELL)
    for line in lines:
        found = _SIZE.search(line)
        if not found:
            continue
        if found[3]:  # a cache: one that holds a window only does not grow with the context
            total += float(found[3]) * _MIB * (scale if int(found[4]) == cells else 1)
        else:
            total += float(found[2]) * _MIB * (scale if found[1] == "compute" else 1)
    return int(total)
