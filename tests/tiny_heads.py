"""Tiny random GGUF models with draft heads: NextN blocks, a Gemma 4 assistant, EAGLE-3.

Targets and heads share the vocabulary of `tiny`, and in all of them only the first few letters can win: an untrained
head then guesses the target's choice now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from tiny import SIZE, A, Array, _random, _save, _writer

LETTERS = 6  # how many letters can win
Random = Callable[..., Array]


def _few_letters(output: Array, n: int = LETTERS) -> Array:
    """Output rows of which only the first n letters' can win: these sum to zero, so one is positive; the rest are 0."""
    few = output[A : A + n] - output[A : A + n].mean(0)
    output[:] = 0
    output[A : A + n] = few
    return output


def _norm(r: Random, n: int, mean: float = 1.0) -> Array:
    """The weights of a norm: all positive, no two alike."""
    return np.exp(r(n, k=0.2)) * np.float32(mean)


def _matrix(r: Random, rows: int, columns: int, k: float = 1.0) -> Array:
    """A matrix that leaves the size of a vector about k times as it is."""
    return r(rows, columns, k=k * columns**-0.5)


def _ends(r: Random, width: int) -> dict[str, Array]:
    return {
        "token_embd.weight": r(SIZE, width),
        "output_norm.weight": _norm(r, width),
        "output.weight": _few_letters(r(SIZE, width)),
    }


def _block(r: Random, b: str, width: int, q: int, k: int, *, fused: bool = False, inputs: int = 0) -> dict[str, Array]:
    """A transformer block: attention from `inputs` numbers to q and k of them, a gated feed-forward network."""
    inputs = inputs or width
    tensors = {
        b + "attn_norm.weight": _norm(r, width),
        b + "ffn_norm.weight": _norm(r, width),
        b + "attn_output.weight": _matrix(r, width, q, 2),
        b + "ffn_gate.weight": _matrix(r, 2 * width, width),
        b + "ffn_up.weight": _matrix(r, 2 * width, width),
        b + "ffn_down.weight": _matrix(r, width, 2 * width),
    }
    qkv = {b + f"attn_{n}.weight": _matrix(r, rows, inputs, 2) for n, rows in (("q", q), ("k", k), ("v", k))}
    return tensors | ({b + "attn_qkv.weight": np.concatenate(list(qkv.values()))} if fused else qkv)


def _nextn(r: Random, b: str, width: int) -> dict[str, Array]:
    return {
        b + "nextn.eh_proj.weight": _matrix(r, width, 2 * width),
        b + "nextn.enorm.weight": _norm(r, width),
        b + "nextn.hnorm.weight": _norm(r, width),
    }


def llama(path: Path, *, layers: int = 3, seed: int = 17, n_ctx: int = 512, width: int = 64) -> Path:
    """A target for `eagle3`."""
    r = _random(seed)
    w = _writer(path, "llama", width=width, layers=layers, n_ctx=n_ctx, heads=2, size=width // 2)
    tensors = _ends(r, width)
    for i in range(layers):
        tensors |= _block(r, f"blk.{i}.", width, width, width // 2)
    _save(w, tensors)
    return path


def mimo2(
    path: Path, *, heads: int = 1, part: Literal["whole", "head", "trunk"] = "whole", seed: int = 12,
    n_ctx: int = 512, window: int = 512, layers: int = 2, width: int = 64,
) -> Path:  # fmt: skip
    """A dense target with `heads` NextN blocks, which see the last `window` tokens; or only the blocks or the target.

    The same seed gives the same tensors in all parts.
    """
    r = _random(seed)
    blocks = layers if part == "trunk" else layers + heads
    w = _writer(path, "mimo2", width=width, layers=blocks, n_ctx=n_ctx, heads=2, size=width // 2)
    w.add_uint32("mimo2.expert_feed_forward_length", 0)
    # The loader wants a layer with a window. The trunk alone has one that is too large to matter.
    w.add_sliding_window(n_ctx if part == "trunk" else window)
    w.add_sliding_window_pattern([i >= min(layers, blocks - 1) for i in range(blocks)])
    if part != "trunk":
        w.add_uint32("mimo2.nextn_predict_layers", heads)
    tensors = _ends(r, width)
    for i in range(layers + heads):
        b, nextn = f"blk.{i}.", i >= layers
        block = _block(r, b, width, width, width // 2, fused=nextn) | (_nextn(r, b, width) if nextn else {})
        if part != ("head" if not nextn else "trunk"):
            tensors |= block
    _save(w, tensors)
    return path


GEMMA_HEADS, GEMMA_FULL, GEMMA_SWA = 2, 32, 16  # heads, their size in a full layer and in one with a window


def _gemma(
    path: Path, arch: str, r: Random, *, width: int, pattern: Sequence[bool], window: int, n_ctx: int
) -> tuple[gguf.GGUFWriter, dict[str, Array]]:
    """What a Gemma 4 and its assistant have in common: the metadata, the blocks."""
    layers = len(pattern)
    w = _writer(path, arch, width=width, layers=layers, n_ctx=n_ctx, heads=GEMMA_HEADS, size=GEMMA_FULL)
    w.add_key_length_swa(GEMMA_SWA)
    w.add_value_length_swa(GEMMA_SWA)
    w.add_uint32(f"{arch}.rope.dimension_count_swa", GEMMA_SWA)
    w.add_rope_freq_base(100000.0)
    w.add_float32(f"{arch}.rope.freq_base_swa", 10000.0)
    w.add_sliding_window(window)
    w.add_sliding_window_pattern(pattern)
    # A full layer turns the first half of its pairs only, as Gemma 4 does.
    tensors = {"rope_freqs.weight": np.repeat(np.array([1, 1e30], np.float32), GEMMA_FULL // 4)}
    for i, swa in enumerate(pattern):
        b, size = f"blk.{i}.", GEMMA_SWA if swa else GEMMA_FULL
        tensors |= _block(r, b, width, GEMMA_HEADS * size, size) | {
            b + "attn_q_norm.weight": _norm(r, size, 2 * size**-0.5),  # scores are not scaled
            b + "attn_k_norm.weight": _norm(r, size),
            b + "post_attention_norm.weight": _norm(r, width),
            b + "post_ffw_norm.weight": _norm(r, width),
            b + "layer_output_scale.weight": np.full(1, 0.8, np.float32),
        }
    return w, tensors


def gemma4(
    path: Path, *, seed: int = 15, n_ctx: int = 512, window: int = 512, layers: int = 4, width: int = 64
) -> Path:
    """A dense Gemma 4: layers with a window and full ones in turn, the last one full."""
    r = _random(seed)
    pattern = [(layers - i) % 2 == 0 for i in range(layers)]
    w, tensors = _gemma(path, "gemma4", r, width=width, pattern=pattern, window=window, n_ctx=n_ctx)
    w.add_uint32("gemma4.embedding_length_per_layer_input", 0)
    w.add_final_logit_softcapping(30.0)  # what llama.cpp takes where a file has none
    tensors |= _ends(r, width)
    tensors["token_embd.weight"] *= width**-0.5  # the graph multiplies by its inverse
    _save(w, tensors)
    return path


def gemma4_assistant(
    path: Path, *, seed: int = 31, n_ctx: int = 512, window: int = 512, width: int = 48, target_width: int = 64
) -> Path:
    """A head for `gemma4`: a layer with a window and a full one, which read the keys of the target's last two."""
    r = _random(seed)
    arch = "gemma4-assistant"
    w, tensors = _gemma(path, arch, r, width=width, pattern=[True, False], window=window, n_ctx=n_ctx)
    w.add_uint32(f"{arch}.embedding_length_out", target_width)
    w.add_uint32(f"{arch}.nextn_predict_layers", 2)
    tensors = {n: t for n, t in tensors.items() if ".attn_k" not in n and ".attn_v" not in n}
    tensors |= {
        "token_embd.weight": _few_letters(r(SIZE, width)),  # its output only: tokens come from the target's
        "output_norm.weight": _norm(r, width),
        "nextn.pre_projection.weight": _matrix(r, width, 2 * target_width),
        "nextn.post_projection.weight": _matrix(r, target_width, width),
    }
    _save(w, tensors)
    return path


def eagle3(
    path: Path, *, target_width: int = 64, target_layers: Sequence[int] = (0, 1, 2), width: int = 64,
    d2t: bool = True, own_embedding: bool = False, own_output: bool = True, norm_before_fc: bool = False,
    norm_before_residual: bool = False, seed: int = 18, n_ctx: int = 512,
) -> Path:  # fmt: skip
    """A head for `llama`. `d2t`: its own vocabulary is a shuffled third of the target's, with the few letters in it."""
    if not (own_embedding and own_output) and width != target_width:
        raise ValueError("what a head borrows has the target's width")
    if d2t and not own_output:
        raise ValueError("the output of the target has all of its vocabulary")
    r = _random(seed)
    w = _writer(path, "eagle3", width=width, layers=1, n_ctx=n_ctx, heads=2, size=width // 2)
    w.add_array("eagle3.target_layers", list(target_layers))
    w.add_uint32("eagle3.target_hidden_size", target_width)
    w.add_bool("eagle3.norm_before_residual", norm_before_residual)
    w.add_bool("eagle3.norm_before_fc", norm_before_fc)
    features = len(target_layers) * target_width
    tensors = _ends(r, width) | _block(r, "blk.0.", width, width, width // 2, inputs=2 * width)
    tensors["blk.0.attn_norm_2.weight"] = _norm(r, width)
    tensors["fc.weight"] = _matrix(r, width, features)
    enc_norm = _norm(r, features)
    if norm_before_fc:
        tensors["enc.output_norm.weight"] = enc_norm
    if d2t:
        rng = np.random.default_rng(seed)
        letters = np.arange(A, A + LETTERS)
        others = rng.choice(np.setdiff1d(np.arange(SIZE), letters), SIZE // 3 - LETTERS, replace=False)
        ids = rng.permutation(np.concatenate([letters, others])).astype(np.int64)
        w.add_tensor("d2t", ids)
        tensors["output.weight"] = tensors["output.weight"][ids]
    if not own_embedding:
        del tensors["token_embd.weight"]
    if not own_output:
        del tensors["output.weight"]
    _save(w, tensors)
    return path


SSM_STATE, SSM_HEADS, SSM_CONV = 16, 2, 4


def _delta_net(r: Random, b: str, width: int) -> dict[str, Array]:
    """A gated delta net in the place of attention."""
    inner = SSM_STATE * SSM_HEADS
    return {
        b + "attn_qkv.weight": _matrix(r, 3 * inner, width),
        b + "attn_gate.weight": _matrix(r, inner, width),
        b + "ssm_conv1d.weight": r(3 * inner, SSM_CONV, k=0.5),
        b + "ssm_dt.bias": np.full(SSM_HEADS, -2, np.float32),
        b + "ssm_a": np.linspace(-1, -0.5, SSM_HEADS, dtype=np.float32),
        b + "ssm_beta.weight": _matrix(r, SSM_HEADS, width),
        b + "ssm_alpha.weight": _matrix(r, SSM_HEADS, width),
        b + "ssm_norm.weight": _norm(r, SSM_STATE),
        b + "ssm_out.weight": _matrix(r, width, inner, 2),
    }


def qwen35(path: Path, *, seed: int = 15, n_ctx: int = 512, layers: int = 4, width: int = 64) -> Path:
    """A hybrid target (a gated delta net in every other layer, full attention between) with one NextN block."""
    r = _random(seed)
    size = width // 2
    w = _writer(path, "qwen35", width=width, layers=layers + 1, n_ctx=n_ctx, heads=2, size=size)
    w.add_uint32("qwen35.nextn_predict_layers", 1)
    w.add_uint32("qwen35.full_attention_interval", 2)
    w.add_rope_dimension_sections([size // 2 - 2 * (size // 6), size // 6, size // 6, 0])
    w.add_ssm_conv_kernel(SSM_CONV)
    w.add_ssm_state_size(SSM_STATE)
    w.add_ssm_inner_size(SSM_STATE * SSM_HEADS)
    w.add_ssm_time_step_rank(SSM_HEADS)
    w.add_ssm_group_count(SSM_HEADS)
    tensors = _ends(r, width)
    for i in range(layers + 1):
        b, nextn = f"blk.{i}.", i == layers
        block = _block(r, b, width, 2 * size, size)
        block[b + "post_attention_norm.weight"] = block.pop(b + "ffn_norm.weight")
        if nextn or i % 2:  # attention with a gate for each number of a head beside its query
            block[b + "attn_q.weight"] = _matrix(r, 4 * size, width, 2)
            block |= {b + f"attn_{n}_norm.weight": _norm(r, size) for n in "qk"}
        else:
            block = {n: t for n, t in block.items() if ".attn_norm" in n or ".attn_" not in n}
            block |= _delta_net(r, b, width)
        tensors |= block | (_nextn(r, b, width) if nextn else {})
    _save(w, tensors)
    return path
