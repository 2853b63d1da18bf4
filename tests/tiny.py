"""Tiny GGUF models that the tests write themselves, in milliseconds, with known answers.

The clock family computes "the next letter of the alphabet" without attention; the random models
have real attention, a sliding window or a recurrent state, so that a wrong cache gives wrong text.
All share one vocabulary: three special tokens, 256 bytes, the letters a to z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

T = gguf.TokenType
Array = np.ndarray[Any, np.dtype[np.float32]]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256)), *(c.encode() for c in LETTERS)]
KINDS = [T.UNKNOWN, T.CONTROL, T.CONTROL, *[T.BYTE] * 256, *[T.NORMAL] * 26]
BOS, EOS, A = 1, 2, 259  # A is the id of "a"
SIZE = len(TEXTS)
EPSILON = 1e-5


def alphabet(n: int) -> str:
    """The first n letters of the repeated alphabet."""
    return (LETTERS * (n // 26 + 1))[:n]


def byte(value: int) -> int:
    """The id of a byte token."""
    return 3 + value


def _vocabulary(
    w: gguf.GGUFWriter, texts: Sequence[bytes] = TEXTS, *, eos: int = EOS, bos: int = BOS, add_bos: bool = False,
    kinds: Sequence[int] | None = None, template: str | None = None, suppress: Sequence[int] = (),
    sampling: Mapping[str, float] | None = None, counts: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    kinds = list(kinds or KINDS)
    kinds += [T.NORMAL] * (len(texts) - len(kinds))
    w.add_vocab_size(len(texts))
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(list(texts))
    w.add_token_scores([0.0] * len(texts))
    w.add_token_types(kinds[: len(texts)])
    w.add_bos_token_id(bos)
    w.add_eos_token_id(eos)
    w.add_unk_token_id(0)
    w.add_add_bos_token(add_bos)
    w.add_add_space_prefix(False)
    if template is not None:
        w.add_chat_template(template)
    for key, count in (counts or {}).items():
        w.add_uint32(key, count)
    for key, value in (sampling or {}).items():
        (w.add_float32 if isinstance(value, float) else w.add_int32)(f"general.sampling.{key}", value)
    if suppress:
        w.add_array("tokenizer.ggml.suppress_tokens", list(suppress))


def _save(w: gguf.GGUFWriter, tensors: Mapping[str, Array]) -> None:
    for name, data in tensors.items():
        w.add_tensor(name, np.ascontiguousarray(data, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def clock(
    path: Path, follow: Mapping[int, int] | None = None, *, always: int | None = None, n_ctx: int = 512,
    texts: Sequence[bytes] = TEXTS, **vocabulary: Any,
) -> Path:  # fmt: skip
    """A llama that says what `follow` says after each token (default: the next letter), or one token always."""
    size = len(texts)
    width = -(-size // 64) * 64
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("clock")
    w.add_context_length(n_ctx)
    w.add_embedding_length(width)
    w.add_block_count(1)
    w.add_feed_forward_length(32)
    w.add_head_count(1)
    w.add_head_count_kv(1)
    w.add_key_length(64)
    w.add_value_length(64)
    w.add_rope_dimension_count(64)
    w.add_layer_norm_rms_eps(1e-5)
    _vocabulary(w, texts, **vocabulary)
    embedding, output = _zeros(size, width), _zeros(size, width)
    if always is not None:
        embedding[:, 0] = 1
        output[always, 0] = 20
    else:
        embedding[np.arange(size), np.arange(size)] = 1
        nexts = [EOS] * size
        nexts[A : A + 26] = [A + (i + 1) % 26 for i in range(26)]
        for token, after in (follow or {}).items():
            nexts[token] = after
        output[nexts, np.arange(size)] = 20
    tensors = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(width, np.float32),
        "output.weight": output,
        "blk.0.attn_norm.weight": np.ones(width, np.float32),
        "blk.0.ffn_norm.weight": np.ones(width, np.float32),
        "blk.0.attn_output.weight": _zeros(width, 64),
        "blk.0.ffn_gate.weight": _zeros(32, width),
        "blk.0.ffn_up.weight": _zeros(32, width),
        "blk.0.ffn_down.weight": _zeros(width, 32),
    }
    tensors |= {f"blk.0.attn_{n}.weight": _zeros(64, width) for n in "qkv"}
    _save(w, tensors)
    return path


def utf8_clock(path: Path) -> Path:
    """a, C3, A9 ("é" in two bytes), a, ..."""
    first, second = "é".encode()
    return clock(path, {A: byte(first), byte(first): byte(second), byte(second): A})


def llamas(path: Path) -> Path:
    """Four bytes, one emoji: a llama follows every llama; after "a" it says " word"."""
    ring, word = "\N{LLAMA}".encode(), len(TEXTS)
    follow = {byte(one): byte(after) for one, after in zip(ring, ring[1:] + ring[:1], strict=True)}
    return clock(path, {**follow, A: word}, texts=[*TEXTS, "\u2581word".encode()])


def _random(seed: int) -> Callable[..., Array]:
    rng = np.random.default_rng(seed)
    return lambda *shape, k=1.0: (rng.standard_normal(shape) * k).astype(np.float32)


def _letters_only(output: Array) -> Array:
    output[:A] = 0  # only a to z can win
    return output


def _writer(
    path: Path, arch: str, *, width: int, layers: int, n_ctx: int, heads: int, size: int, rope: bool = True
) -> gguf.GGUFWriter:
    """A transformer's metadata: attention heads of this size over one head of keys, and the vocabulary."""
    w = gguf.GGUFWriter(path, arch)
    w.add_name(f"tiny-{arch}")
    w.add_context_length(n_ctx)
    w.add_embedding_length(width)
    w.add_block_count(layers)
    w.add_feed_forward_length(2 * width)
    w.add_head_count(heads)
    w.add_head_count_kv(1)
    w.add_key_length(size)
    w.add_value_length(size)
    if rope:
        w.add_rope_dimension_count(size)
    w.add_layer_norm_rms_eps(EPSILON)
    _vocabulary(w)
    return w


def plain(
    path: Path, *, seed: int = 3, n_ctx: int = 512, layers: int = 2, arch: str = "llama", window: int = 0,
    letters_only: bool = True,
) -> Path:  # fmt: skip
    """A random transformer with real attention: `llama`, or `gemma3` with a sliding window.

    letters_only: it says letters by itself, and other bytes only where it must.
    """
    width, heads, size = 64, 2, 32
    r = _random(seed)
    w = _writer(path, arch, width=width, layers=layers, n_ctx=n_ctx, heads=heads, size=size, rope=not window)
    if window:
        w.add_sliding_window(window)
    ones = np.ones(width, np.float32)
    tensors = {
        "token_embd.weight": r(SIZE, width, k=1 if not window else width**-0.5),
        "output_norm.weight": ones,
        "output.weight": _letters_only(r(SIZE, width)) if letters_only else r(SIZE, width, k=0.5),
    }
    for i in range(layers):
        b = f"blk.{i}."
        tensors |= {
            b + "attn_norm.weight": ones,
            b + "ffn_norm.weight": ones,
            b + "attn_q.weight": r(heads * size, width, k=2 * width**-0.5),
            b + "attn_k.weight": r(size, width, k=2 * width**-0.5),
            b + "attn_v.weight": r(size, width, k=2 * width**-0.5),
            b + "attn_output.weight": r(width, heads * size, k=2 * (heads * size) ** -0.5),
            b + "ffn_gate.weight": r(2 * width, width, k=width**-0.5),
            b + "ffn_up.weight": r(2 * width, width, k=width**-0.5),
            b + "ffn_down.weight": r(width, 2 * width, k=(2 * width) ** -0.5),
        }
        if window:
            tensors |= {
                b + "attn_q_norm.weight": np.ones(size, np.float32),
                b + "attn_k_norm.weight": np.ones(size, np.float32),
                b + "post_attention_norm.weight": ones,
                b + "post_ffw_norm.weight": ones,
            }
    _save(w, tensors)
    return path


def windowed(path: Path, *, window: int = 16, n_ctx: int = 512) -> Path:
    """A gemma3 whose first five of six layers see the last `window` tokens only."""
    return plain(path, seed=5, arch="gemma3", window=window, layers=6, n_ctx=n_ctx)


def mamba(path: Path, *, seed: int = 7, n_ctx: int = 512, hybrid: bool = False) -> Path:
    """A random recurrent model: its state cannot forget a suffix. `hybrid`: a jamba, with attention layers between."""
    width, layers, state, conv, rank = 64, 4 if hybrid else 2, 16, 4, 4
    heads = [0, 1] * (layers // 2) if hybrid else [0] * layers
    inner, r = 2 * width, _random(seed)
    arch = "jamba" if hybrid else "mamba"
    w = gguf.GGUFWriter(path, arch)
    w.add_name(f"tiny-{arch}")
    w.add_context_length(n_ctx)
    w.add_embedding_length(width)
    w.add_feed_forward_length(2 * width if hybrid else 0)
    w.add_head_count(1 if hybrid else 0)
    if hybrid:
        w.add_head_count_kv(heads)
    w.add_block_count(layers)
    w.add_ssm_conv_kernel(conv)
    w.add_ssm_inner_size(inner)
    w.add_ssm_state_size(state)
    w.add_ssm_time_step_rank(rank)
    w.add_layer_norm_rms_eps(1e-5)
    _vocabulary(w)
    tensors = {
        "token_embd.weight": r(SIZE, width),
        "output_norm.weight": np.ones(width, np.float32),
        "output.weight": _letters_only(r(SIZE, width)),
    }
    for i, attention in enumerate(heads):
        b = f"blk.{i}."
        tensors[b + "attn_norm.weight"] = np.ones(width, np.float32)
        if attention:
            tensors |= {b + f"attn_{n}.weight": r(width, width, k=2 * width**-0.5) for n in "qkv"}
            tensors[b + "attn_output.weight"] = r(width, width, k=2 * width**-0.5)
        else:
            tensors[b + "ssm_in.weight"] = r(2 * inner, width, k=width**-0.5)
            tensors[b + "ssm_conv1d.weight"] = r(inner, conv, k=0.5)
            tensors[b + "ssm_conv1d.bias"] = _zeros(inner)
            tensors[b + "ssm_x.weight"] = r(rank + 2 * state, inner, k=inner**-0.5)
            tensors[b + "ssm_dt.weight"] = r(inner, rank, k=0.5)
            tensors[b + "ssm_dt.bias"] = np.full(inner, -2, np.float32)
            tensors[b + "ssm_a"] = -np.tile(np.arange(1, state + 1, dtype=np.float32) * 0.2, (inner, 1))
            tensors[b + "ssm_d"] = np.ones(inner, np.float32)
            tensors[b + "ssm_out.weight"] = r(width, inner, k=2 * inner**-0.5)
        if hybrid:
            tensors[b + "ffn_norm.weight"] = np.ones(width, np.float32)
            tensors |= {b + f"ffn_{n}.weight": r(2 * width, width, k=width**-0.5) for n in ("gate", "up")}
            tensors[b + "ffn_down.weight"] = r(width, 2 * width, k=(2 * width) ** -0.5)
            if not attention:
                tensors[b + "ssm_dt_norm.weight"] = np.ones(rank, np.float32)
                tensors |= {b + f"ssm_{n}_norm.weight": np.ones(state, np.float32) for n in "bc"}
    _save(w, tensors)
    return path


def lora(path: Path, *, seed: int = 11, width: int = 64, rank: int = 2) -> Path:
    """A random adapter for the output projections of `plain`."""
    r = _random(seed)
    w = gguf.GGUFWriter(path, "llama")
    w.add_type("adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", float(rank))
    tensors = {}
    for i in range(2):
        tensors[f"blk.{i}.attn_output.weight.lora_a"] = r(rank, width)
        tensors[f"blk.{i}.attn_output.weight.lora_b"] = r(width, rank)
    _save(w, tensors)
    return path
