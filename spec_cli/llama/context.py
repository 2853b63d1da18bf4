"""Sizes and types of a context, as llama.cpp takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spec_cli.llama.log import C


def cache_type(name: str) -> int:
    """A type of cached keys or values by its flag's name, e.g. q8_0."""
    return 30 if name == "bf16" else int(getattr(C, f"GGML_TYPE_{name.upper()}"))  # the binding lacks ggml.h's BF16


def gpu_offload() -> bool:
    """Whether this build of llama.cpp can use a GPU."""
    return bool(C.llama_supports_gpu_offload())


@dataclass(frozen=True, slots=True)
class ContextParams:
    """Sizes and types of one context; every size is checked before C sees it.

    n_ctx: positions of one sequence; the cache has n_sequences times that, for all together.
    n_spare: places for texts beyond those, which get no positions of their own.
    """

    n_ctx: int
    n_batch: int = 2048
    n_ubatch: int = 512
    n_sequences: int = 1
    n_spare: int = 0
    n_outputs: int = 1
    n_threads: int = 1
    n_threads_batch: int = 1
    flash_attn: int = -1
    type_k: int = C.GGML_TYPE_F16
    type_v: int = C.GGML_TYPE_F16
    swa_full: bool = False
    offload_kqv: bool = True
    op_offload: bool = True
    rope_scaling: int = -1
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_orig_ctx: int = 0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_beta_fast: float = -1.0

    def clipped(self) -> ContextParams:
        """With a batch no longer than the context (llama.cpp rounds it up to a multiple of 256)."""
        n_batch = min(self.n_batch, -(-self.n_ctx * self.n_sequences // 256) * 256)
        return replace(self, n_batch=n_batch, n_outputs=min(self.n_outputs, n_batch))

    def c(self) -> Any:
        """As llama.cpp's struct, with the values of its tools where the library's defaults differ."""
        params = C.llama_context_default_params()
        params.n_ctx = -(-self.n_ctx // 256) * 256 * self.n_sequences  # llama.cpp would round the product only
        params.n_batch, params.n_ubatch = self.n_batch, min(self.n_ubatch, self.n_batch)
        params.n_seq_max, params.kv_unified = self.n_sequences + self.n_spare, True
        outputs = max(self.n_outputs, params.n_seq_max)  # fewer are an assertion
        params.n_outputs_max, params.n_outputs_max_per_seq = outputs, outputs
        params.n_threads, params.n_threads_batch = self.n_threads, self.n_threads_batch
        params.flash_attn_type = self.flash_attn
        params.type_k, params.type_v = self.type_k, self.type_v
        params.offload_kqv, params.op_offload = self.offload_kqv, self.op_offload
        params.rope_scaling_type = self.rope_scaling
        params.rope_freq_base, params.rope_freq_scale = self.rope_freq_base, self.rope_freq_scale
        for name in ("yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"):
            setattr(params, name, getattr(self, name))
        params.swa_full, params.no_perf = self.swa_full, False
        return params
