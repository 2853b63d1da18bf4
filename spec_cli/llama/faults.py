"""What in a header ends the process inside llama.cpp, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spec_cli.llama.gguf import STRING, Gguf, opened

SCALINGS = (b"none", b"linear", b"yarn", b"longrope")


def fault_of(path: Path, role: str, overrides: Mapping[str, object] | None = None) -> str | None:
    """The first such fault of a file that llama.cpp can open; None where none is known."""
    with opened(path, overrides, role) as header:
        return _numbers(header) or _doubles(header)


def _numbers(header: Gguf) -> str | None:
    arch = header.arch
    scaling = header.value(f"{arch}.rope.scaling.type", STRING)
    if scaling is not None and scaling not in SCALINGS:
        return f"{arch}.rope.scaling.type is {scaling.decode('utf-8', 'replace')}"
    experts, used = header.value(f"{arch}.expert_count") or 0, header.integers(f"{arch}.expert_used_count") or [0]
    if max(used) > experts or (experts and not max(used)):
        return f"{arch}.expert_count is {experts}, and expert_used_count {max(used) or 'missing'}"
    return None


def _doubles(header: Gguf) -> str | None:
    """Two tokens with one text (C reads texts up to a NUL); some publishers' files have them."""
    seen: dict[bytes, int] = {}
    for i, text in enumerate(header.texts("tokenizer.ggml.tokens")):
        if (first := seen.setdefault(text, i)) != i:
            return f"its tokens {first} and {i} are both {text.decode('utf-8', 'replace')!r}"
    return None
