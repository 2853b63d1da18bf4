"""vLLM's `--speculative-config '{"method": ..., "num_speculative_tokens": N}'` in flags of spec-cli."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from spec_cli.errors import UsageError

SPECULATIVE_CONFIG = "--speculative-config"
LOOKUP = 5  # vllm/config/speculative.py: prompt_lookup_max where none is given
KEYS: dict[str, type] = {
    "method": str, "model": str, "num_speculative_tokens": int, "prompt_lookup_max": int, "prompt_lookup_min": int,
}  # fmt: skip
_HEADS = {"eagle3": "draft-eagle3", "mtp": "draft-mtp"}
METHODS = ("ngram", "draft_model", *_HEADS)


def translated(text: str) -> list[str]:
    """The same wish as flags of spec-cli. Raises UsageError that names what cannot be done.

    prompt_lookup_min is read and without effect: ngram-simple looks for repeats of one length.
    """
    config = _read(text)
    method, model, n = config.get("method"), config.get("model"), config.get("num_speculative_tokens")
    if method is None:
        method = "ngram" if model in ("ngram", "[ngram]") else "draft_model"
    if method.endswith("_mtp"):
        method = "mtp"
    if method not in METHODS:
        raise UsageError(
            f"{SPECULATIVE_CONFIG}: method {method!r} cannot be done here (what can: {', '.join(METHODS)})"
        )
    if method == "ngram":
        size = config.get("prompt_lookup_max", config.get("prompt_lookup_min", LOOKUP))
        flags = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", f"{size}"]
        if n is not None:  # a draft shorter than the repeat is never made: a longer one is cut
            flags += ["--spec-ngram-simple-size-m", f"{max(n, size)}"]
    elif method == "draft_model":
        if model is None:
            raise UsageError(f"{SPECULATIVE_CONFIG}: neither a method nor a model (methods: {', '.join(METHODS)})")
        flags = _file(model)
    else:
        flags = ["--spec-type", _HEADS[method], *(_file(model) if model is not None else [])]
    return [*flags, *(["--spec-draft-n-max", f"{n}"] if n is not None else [])]


def _read(text: str) -> dict[str, Any]:
    try:
        config: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{SPECULATIVE_CONFIG}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{SPECULATIVE_CONFIG}: not a JSON object")
    given: dict[str, Any] = {key: value for key, value in config.items() if value is not None}
    for key, value in given.items():
        if key not in KEYS:
            raise UsageError(f"{SPECULATIVE_CONFIG}: {key!r} cannot be done here (keys: {', '.join(KEYS)})")
        too_small = isinstance(value, int) and value < 1
        if type(value) is not KEYS[key] or too_small:
            what = "a number from 1" if KEYS[key] is int else "a text"
            raise UsageError(f"{SPECULATIVE_CONFIG}: {key}: {json.dumps(value)} is not {what}")
    return given


def _file(model: str) -> list[str]:
    """The draft's file, or a repository."""
    hub = not os.path.exists(model) and re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not model.endswith(".gguf")
    return ["-hfd" if hub else "-md", model]
