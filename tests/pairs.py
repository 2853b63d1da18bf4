"""Tiny targets with the heads that are made for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_heads

from spec_cli.settings import Settings

EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "cache_type_k_draft": "f32", "cache_type_v_draft": "f32"}
SMALL: dict[str, Any] = {"threads": 1, "ctx_size": 512, "flash_attn": 0, "raw": True, "temp": 0.0, **EXACT}


@dataclass(frozen=True)
class Pair:
    """A target and the file of its head; None: its own MTP layers."""

    target: Path
    head: Path | None

    def settings(self, **more: Any) -> Settings:
        return Settings(**{"model": self.target, "model_draft": self.head, **SMALL, **more})

    @property
    def n_heads(self) -> int:
        return 3 if self.target.name.startswith("mimo-3") else 8


MODES = ["mimo", "mimo-3", "mimo-window", "mimo-file", "gemma4", "eagle3", "eagle3-own", "qwen35"]


def write_pairs(at: Path) -> dict[str, Pair]:
    """One block, three blocks, a block with a window, one in a file of its own; an assistant that looks into its
    target's memory; EAGLE-3 with all from its target and with all of its own; a block on a hybrid model.
    """
    llama = tiny_heads.llama(at / "llama.gguf")
    own: dict[str, Any] = {"own_embedding": True, "width": 48, "target_layers": (1, 2, 0), "norm_before_fc": True}
    return {
        "mimo": Pair(tiny_heads.mimo2(at / "mimo.gguf"), None),
        "mimo-3": Pair(tiny_heads.mimo2(at / "mimo-3.gguf", heads=3), None),
        "mimo-window": Pair(tiny_heads.mimo2(at / "mimo-window.gguf", window=8), None),
        "mimo-file": Pair(
            tiny_heads.mimo2(at / "trunk.gguf", part="trunk"), tiny_heads.mimo2(at / "head.gguf", part="head")
        ),
        "gemma4": Pair(tiny_heads.gemma4(at / "gemma4.gguf"), tiny_heads.gemma4_assistant(at / "assistant.gguf")),
        "eagle3": Pair(llama, tiny_heads.eagle3(at / "eagle3.gguf", d2t=False, own_output=False)),
        "eagle3-own": Pair(llama, tiny_heads.eagle3(at / "eagle3-own.gguf", **own)),
        "qwen35": Pair(tiny_heads.qwen35(at / "qwen35.gguf"), None),
    }
