"""Tiny models that say no next token: what embeds texts, and what translates them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tiny import SIZE, Array, _random, _save, _writer, _zeros

WIDTH, HEADS = 64, 2


def bert(path: Path) -> Path:
    """An embedding model: attention to both sides, the mean of its states, no output layer."""
    r = _random(1)
    w = _writer(path, "bert", width=WIDTH, layers=1, n_ctx=512, heads=HEADS, size=WIDTH // HEADS, rope=False)
    w.add_layer_norm_eps(1e-5)
    w.add_token_type_count(2)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    rows = {"attn_q": WIDTH, "attn_k": WIDTH // HEADS, "attn_v": WIDTH // HEADS, "ffn_up": 2 * WIDTH}
    tensors = {"token_embd.weight": r(SIZE, WIDTH), "token_types.weight": r(2, WIDTH)}
    tensors |= {"position_embd.weight": r(512, WIDTH), **_norm("token_embd_norm")}
    for name, n in {**rows, "attn_output": WIDTH}.items():
        tensors |= {f"blk.0.{name}.weight": r(n, WIDTH), f"blk.0.{name}.bias": _zeros(n)}
    tensors |= {"blk.0.ffn_down.weight": r(WIDTH, 2 * WIDTH), "blk.0.ffn_down.bias": _zeros(WIDTH)}
    _save(w, tensors | _norm("blk.0.attn_output_norm") | _norm("blk.0.layer_output_norm"))
    return path


def _norm(name: str) -> dict[str, Array]:
    return {f"{name}.weight": np.ones(WIDTH, np.float32), f"{name}.bias": _zeros(WIDTH)}


def t5(path: Path, *, decoder: bool) -> Path:
    """An encoder, or one with a decoder behind it."""
    r, arch = _random(1), "t5" if decoder else "t5encoder"
    w = _writer(path, arch, width=WIDTH, layers=1, n_ctx=512, heads=HEADS, size=WIDTH // HEADS, rope=False)
    del w.kv_data[0][f"{arch}.attention.head_count_kv"]
    w.add_relative_attn_buckets_count(32)
    ones = np.ones(WIDTH, np.float32)
    tensors = {"token_embd.weight": r(SIZE, WIDTH)}
    for part in ("enc", "dec") if decoder else ("enc",):
        b = f"{part}.blk.0."
        names = [f"attn_{n}" for n in "qkvo"] + [f"cross_attn_{n}" for n in "qkvo"] * (part == "dec")
        norms = ["attn_norm", "ffn_norm"] + ["cross_attn_norm"] * (part == "dec")
        tensors |= {f"{b}{name}.weight": r(WIDTH, WIDTH) for name in names}
        tensors |= {f"{b}{name}.weight": ones for name in norms} | {f"{part}.output_norm.weight": ones}
        tensors |= {f"{b}ffn_{n}.weight": r(2 * WIDTH, WIDTH) for n in ("up", "gate")}
        tensors |= {f"{b}attn_rel_b.weight": r(32, HEADS), f"{b}ffn_down.weight": r(WIDTH, 2 * WIDTH)}
    _save(w, tensors)
    return path
