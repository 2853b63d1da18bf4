"""What -m and -md may hold besides a file's path: an address at Hugging Face; and what was meant where it is none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from spec_cli.errors import UsageError, did_you_mean

_ADDRESS = re.compile(
    r"(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/(?P<repo>[\w.-]+/[\w.-]+?)(?P<quant>:[\w.-]+)?/?"
    r"(?:/(?:tree|blob|resolve)/(?P<revision>[^/?]+)(?:/(?P<file>[^?]+?))?/?)?(?:\?.*)?"
)
_REPO = re.compile(r"(?![.~])[\w.-]+/[\w.-]+(:[\w.-]+)?")
_TAGGED = re.compile(r"[\w.-]{2,}:[\w.-]+")


def hub_address(text: str) -> tuple[str, str] | None:
    """`USER/REPO[:QUANT]` and the file ("" for none) of an address at Hugging Face, None for anything else.

    Raises UsageError for an address that -hf cannot reach.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or os.path.exists(text):
        return None
    if found["revision"] not in (None, "main"):
        raise UsageError(f"{text}: -hf takes files of the branch main, not of {found['revision']}")
    return found["repo"] + (found["quant"] or ""), found["file"] or ""


def is_repo(name: str) -> bool:
    """Whether a name that is no file reads like a repository rather than like a path."""
    return bool(_REPO.fullmatch(name)) and not name.endswith(".gguf") and not os.path.isdir(name.partition("/")[0])


def instead_of(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is neither a file nor in models.toml."""
    if _TAGGED.fullmatch(name):
        return " (an Ollama name? ollama show --modelfile NAME tells its file, -hf USER/REPO:QUANT downloads)"
    return did_you_mean(name, known)
