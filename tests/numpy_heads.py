"""What the models of `tiny_heads` compute, in numpy: a target's rows and logits, and what a draft head makes of them.

`run(target, tokens)` is a target over a whole text. `steps(target, head, tokens, n)` are the logits of n drafting steps
after a text, as llama.cpp computes them when each row of the text has the target's own hidden state and only the
guesses' rows have the head's; `drafts` are the greedy guesses. Nothing is cached: each step computes its rows anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32


class File:
    """A GGUF file: its tensors by llama.cpp's names without ".weight", its metadata without the architecture."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name.removesuffix(".weight"): np.array(t.data) for t in reader.tensors}
        self.keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
        self.arch = str(self.keys["general.architecture"])
        self.nextn: int = self.get("nextn_predict_layers", 0)
        self.layers: int = self.get("block_count") - self.nextn
        self.swa: list[bool] = self.get("attention.sliding_window_pattern", [False] * self.get("block_count"))

    def get(self, key: str, default: Any = None) -> Any:
        return self.keys.get(f"{self.arch}.{key}", default)

    def by_layer(self, key: str, layer: int) -> Any:
        """A number of which layers with a window may have their own."""
        return self.get(key + "_swa" * self.swa[layer], self.get(key))

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name]

    def mul(self, name: str, x: Array) -> Array:
        y: Array = x @ self[name].T
        return y

    def norm(self, name: str, x: Array) -> Array:
        y: Array = rms(x, self.get("attention.layer_norm_rms_epsilon")) * self[name]
        return y


def load(path: Path) -> File:
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, changed: int) -> File:
    return File(path)


def rms(x: Array, eps: float) -> Array:
    y: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + F(eps))
    return y


def sigmoid(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    """As ggml has it: a table in half precision."""
    x = x.astype(np.float16).astype(F)
    y: Array = x / 2 * (1 + np.tanh(F((2 / np.pi) ** 0.5) * x * (1 + F(0.044715) * x * x)))
    return y.astype(np.float16).astype(F)


def rope(f: File, layer: int, x: Array, positions: Array) -> Array:
    """Turn the pairs of each head [row, head, number]: two neighbours in llama and eagle3, else one of each half."""
    half = f.by_layer("rope.dimension_count", layer) // 2
    base = f.by_layer("rope.freq_base", layer) or 10000
    factors = F(1) if f.swa[layer] else f.tensors.get("rope_freqs", F(1))
    angles = positions[:, None, None] * F(base) ** (np.arange(half, dtype=F) / -half) / factors
    cos, sin = np.cos(angles), np.sin(angles)
    neighbours = f.arch in ("llama", "eagle3")
    one, two = (slice(0, None, 2), slice(1, None, 2)) if neighbours else (slice(half), slice(half, None))
    y = np.empty_like(x)
    y[..., one] = x[..., one] * cos - x[..., two] * sin
    y[..., two] = x[..., one] * sin + x[..., two] * cos
    return y


def attend(f: File, layer: int, q: Array, k: Array, v: Array, positions: Array, scale: float) -> Array:
    """Causal attention [row, head, number]; key i is at position i. A window of 1 is the row's own position."""
    ago = positions[:, None] - np.arange(len(k))
    seen = ago >= 0
    if f.swa[layer]:
        seen &= ago < f.get("attention.sliding_window")
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q, k) * F(scale), F(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y: Array = np.einsum("hqk,khd->qhd", weights, v)
    return y.reshape(len(q), -1)


def project(f: File, layer: int, x: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values [row, head, number], not turned yet."""
    b, size, heads = f"blk.{layer}.attn_", f.by_layer("attention.key_length", layer), f.get("attention.head_count")
    if b + "qkv" in f.tensors:
        k_end = (heads + f.get("attention.head_count_kv")) * size
        q, k, v = np.split(f.mul(b + "qkv", x), [heads * size, k_end], 1)
    else:
        q, k, v = (f.mul(b + n, x) for n in "qkv")
    return q.reshape(len(x), heads, -1), k.reshape(len(x), -1, size), v.reshape(len(x), -1, size)


def ffn(f: File, layer: int, x: Array, activation: Callable[[Array], Array] = silu) -> Array:
    b = f"blk.{layer}.ffn_"
    return f.mul(b + "down", activation(f.mul(b + "gate", x)) * f.mul(b + "up", x))


def block(f: File, layer: int, x: Array, seen: Array | None = None) -> Array:
    """A block of llama and mimo2; `seen` is what attention reads, if it is not the normed x (EAGLE-3)."""
    b, positions = f"blk.{layer}.", np.arange(len(x))
    q, k, v = project(f, layer, f.norm(b + "attn_norm", x) if seen is None else seen)
    q, k = rope(f, layer, q, positions), rope(f, layer, k, positions)
    x = x + f.mul(b + "attn_output", attend(f, layer, q, k, v, positions, q.shape[-1] ** -0.5))
    return x + ffn(f, layer, f.norm(b + "ffn_norm", x))


def gemma_block(f: File, layer: int, x: Array, positions: Array, kv: tuple[Array, Array] | None = None) -> Array:
    """A block of Gemma 4, with the keys and values of `gemma_kv`, or of its assistant, with those of the target."""
    b = f"blk.{layer}."
    seen = f.norm(b + "attn_norm", x)
    q = f.mul(b + "attn_q", seen).reshape(len(x), f.get("attention.head_count"), -1)
    q = rope(f, layer, f.norm(b + "attn_q_norm", q), positions)
    k, v = kv or gemma_kv(f, layer, x)
    attention = f.mul(b + "attn_output", attend(f, layer, q, k, v, positions, 1.0))
    x = x + f.norm(b + "post_attention_norm", attention)
    x = x + f.norm(b + "post_ffw_norm", ffn(f, layer, f.norm(b + "ffn_norm", x), gelu))
    return x * f[b + "layer_output_scale"]


def gemma_kv(f: File, layer: int, x: Array) -> tuple[Array, Array]:
    b = f"blk.{layer}."
    _, k, v = project(f, layer, f.norm(b + "attn_norm", x))
    k = rope(f, layer, f.norm(b + "attn_k_norm", k), np.arange(len(x)))
    return k, rms(v, f.get("attention.layer_norm_rms_epsilon"))


def qwen_block(f: File, layer: int, x: Array) -> Array:
    b = f"blk.{layer}."
    seen = f.norm(b + "attn_norm", x)
    x = x + (delta_net if b + "ssm_a" in f.tensors else gated_attention)(f, layer, seen)
    return x + ffn(f, layer, f.norm(b + "post_attention_norm", x))


def gated_attention(f: File, layer: int, x: Array) -> Array:
    """Qwen 3.5's attention: a query's head has as many gates beside its numbers."""
    b, positions = f"blk.{layer}.attn_", np.arange(len(x))
    q, k, v = project(f, layer, x)
    q, gate = np.split(q, 2, -1)
    q = rope(f, layer, f.norm(b + "q_norm", q), positions)
    k = rope(f, layer, f.norm(b + "k_norm", k), positions)
    y = attend(f, layer, q, k, v, positions, q.shape[-1] ** -0.5)
    return f.mul(b + "output", y * sigmoid(gate.reshape(len(x), -1)))


def delta_net(f: File, layer: int, x: Array) -> Array:
    """Qwen 3.5's linear attention: a state for each head, which decays and learns the value of each key."""
    b, eps = f"blk.{layer}.", f.get("attention.layer_norm_rms_epsilon")
    heads, size, kernel = f.get("ssm.time_step_rank"), f.get("ssm.state_size"), f[b + "ssm_conv1d"]
    taps = kernel.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, len(kernel)), F), f.mul(b + "attn_qkv", x)])
    mixed = silu(np.array([(padded[t : t + taps] * kernel.T).sum(0) for t in range(len(x))]))
    q, k, v = (part.reshape(len(x), heads, size) for part in np.split(mixed, 3, 1))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + F(eps)) for y in (q, k))
    beta = sigmoid(f.mul(b + "ssm_beta", x))
    decay = np.exp(np.log1p(np.exp(f.mul(b + "ssm_alpha", x) + f[b + "ssm_dt.bias"])) * f[b + "ssm_a"])
    state, rows = np.zeros((heads, size, size), F), []  # [head, key, value]
    for t in range(len(x)):
        state = state * decay[t, :, None, None]
        wrong = v[t] - np.einsum("hk,hkv->hv", k[t], state)
        state = state + np.einsum("hk,hv->hkv", k[t], beta[t, :, None] * wrong)
        rows.append(np.einsum("hk,hkv->hv", q[t], state) * F(size**-0.5))
    y = f.norm(b + "ssm_norm", np.array(rows)).reshape(len(x), -1) * silu(f.mul(b + "attn_gate", x))
    return f.mul(b + "ssm_out", y)


@dataclass
class Run:
    """A target over a text: all arrays have a row for each token."""

    inputs: list[Array]  # of each layer
    hidden: Array  # what an MTP head reads: before the last norm in mimo2, after it in the others
    logits: Array


def run(target: Path, tokens: Sequence[int]) -> Run:
    f, inputs = load(target), []
    x = f["token_embd"][list(tokens)]
    if f.arch == "gemma4":
        x = x * F(x.shape[1] ** 0.5)
    for layer in range(f.layers):
        inputs.append(x)
        if f.arch == "gemma4":
            x = gemma_block(f, layer, x, np.arange(len(x)))
        else:
            x = (qwen_block if f.arch == "qwen35" else block)(f, layer, x)
    normed = f.norm("output_norm", x)
    logits = f.mul("output", normed)
    if cap := f.get("final_logit_softcapping"):
        logits = np.tanh(logits / cap) * cap
    return Run(inputs, normed if f.arch in ("gemma4", "qwen35") else x, logits)


def nextn(f: File, layer: int, tokens: Sequence[int], hidden: Array) -> tuple[Array, Array]:
    """A NextN block over rows (token, hidden state of the token before): the rows it hands on, and the logits."""
    b = f"blk.{layer}.nextn."
    embedding = f.norm(b + "enorm", f["token_embd"][list(tokens)])
    x = f.mul(b + "eh_proj", np.concatenate([embedding, f.norm(b + "hnorm", hidden)], 1))
    x = (qwen_block if f.arch == "qwen35" else block)(f, layer, x)
    normed = f.norm("output_norm", x)
    return normed if f.arch == "qwen35" else x, f.mul("output", normed)


def mtp_steps(target: Path, head: File, tokens: list[int]) -> Iterator[Array]:
    """Row p is (x_p, h_{p-1}), row 0 (x_0, 0). With several blocks, step i is block i's, over all rows."""
    hidden = run(target, tokens[:-1]).hidden
    hidden = np.concatenate([np.zeros_like(hidden[:1]), hidden])
    step = 0
    while True:
        rows, logits = nextn(head, head.layers + (step if head.nextn > 1 else 0), tokens, hidden)
        yield logits[-1]
        hidden = np.concatenate([hidden, rows[-1:]])
        step += 1


def assistant_steps(target: Path, head: File, tokens: list[int]) -> Iterator[Array]:
    """One row a step, always at the newest token's position; it sees the target's keys before that position."""
    f, text = load(target), run(target, tokens[:-1])
    position = np.array([len(tokens) - 1])
    hidden = text.hidden[-1:]
    kv = {swa: gemma_kv(f, layer, text.inputs[layer]) for swa, layer in ((True, f.layers - 2), (False, f.layers - 1))}
    while True:
        embedding = f["token_embd"][tokens[-1:]]
        x = np.concatenate([embedding * F(embedding.shape[1] ** 0.5), hidden], 1)
        x = head.mul("nextn.pre_projection", x)
        for layer in range(head.nextn):
            x = gemma_block(head, layer, x, position, kv[bool(head.swa[layer])])
        x = head.norm("output_norm", x)
        yield head.mul("token_embd", x)[0]
        hidden = head.mul("nextn.post_projection", x)


def eagle3_steps(target: Path, head: File, tokens: list[int]) -> Iterator[Array]:
    """Row p is (x_{p+1}, g_p): g_p is made of three of the target's layer inputs at p, or is a guess's own state."""
    f, text = load(target), run(target, tokens[:-1])
    features = np.concatenate([text.inputs[layer] for layer in head.get("target_layers")], 1)
    if head.get("norm_before_fc"):
        features = head.norm("enc.output_norm", features)
    g = head.mul("fc", features)
    token_embd = head.tensors.get("token_embd", f["token_embd"])
    output = head.tensors.get("output", f["output"])
    ids = head.tensors.get("d2t", np.arange(len(output)))
    while True:
        normed = head.norm("blk.0.attn_norm_2", g)
        seen = np.concatenate([head.norm("blk.0.attn_norm", token_embd[tokens[1:]]), normed], 1)
        x = block(head, 0, normed if head.get("norm_before_residual") else g, seen)
        logits = np.full(len(f["output"]), -np.inf, F)
        logits[ids] = output @ head.norm("output_norm", x[-1])
        yield logits
        g = np.concatenate([g, x[-1:]])


def steps(target: Path, head: Path | None, tokens: Sequence[int], n: int, guesses: Sequence[int] = ()) -> Array:
    """The logits [step, token] of n drafting steps after a text of two tokens or more; no head: the target's NextN.

    The guess of a step is the best token, or the one that `guesses` has for it; the text grows by it.
    """
    file, text, logits = load(head or target), list(tokens), []
    modes = {"eagle3": eagle3_steps, "gemma4-assistant": assistant_steps}
    for row in modes.get(file.arch, mtp_steps)(target, file, text):
        logits.append(row)
        if len(logits) == n:
            break
        text.append(guesses[len(logits) - 1] if len(guesses) >= len(logits) else int(row.argmax()))
    return np.array(logits)


def drafts(target: Path, head: Path | None, tokens: Sequence[int], n: int) -> list[int]:
    """The greedy guesses that follow a text whose last token is the newest sampled one."""
    return [int(i) for i in steps(target, head, tokens, n).argmax(1)]
