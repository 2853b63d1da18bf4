"""Which file of a repository is meant (llama.cpp: common/download.cpp)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from spec_cli.shards import SHARD

# In a base name, written so: never "the model". Folders and "-MTP-" mean nothing (gguf_filename_is_model).
NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
HEADS = {"mtp-": "draft-mtp", "eagle3-": "draft-eagle3"}  # heads for a model by their names; the first kind counts
PREFERRED = ("Q4_K_M", "Q8_0")


def choose_file(names: Iterable[str], tag: str) -> str | None:
    """The file of a repository that a quantisation's name means; without one Q4_K_M, else Q8_0, else the first."""
    models = [n for n in _files(names) if not any(word in _base(n) for word in NOT_MODELS)]
    for wanted in (tag,) if tag else PREFERRED:
        for name in models:
            if re.search(rf"{re.escape(wanted)}[.-]", name, re.IGNORECASE):
                return name
    return None if tag or not models else models[0]


def choose_draft(names: Iterable[str], tag: str, types: Collection[str] | None = None) -> str | None:
    """The head of the closest quantisation, else the file that `choose_file` takes (find_best_sibling).

    types: the kinds of speculation that were asked for, each with its head; None: whichever is there.
    """
    files = _files(names)
    model = choose_file(files, tag)
    folders, bits = (model or "").split("/")[:-1], _first_number(tag) if tag else _bits(model or "")
    kinds = [word for word, kind in HEADS.items() if types is None or kind in types]
    heads = {n: next((i for i, word in enumerate(kinds) if word in _base(n)), None) for n in files}
    heads = {n: kind for n, kind in heads.items() if kind is not None}

    def distance(name: str) -> tuple[object, ...]:
        own = name.split("/")[:-1]
        beside = folders[: len(own)] == own  # in the model's folder, or further up
        exact = bool(tag) and f"-{tag}.".upper() in name.upper()
        return not beside, heads[name], -len(own), not exact, abs(_bits(name) - bits)

    return min(heads, key=distance) if heads else model


def _files(names: Iterable[str]) -> list[str]:
    """The GGUF files, of a split one the first."""
    files = sorted(n for n in names if n.endswith(".gguf"))
    return [n for n in files if (shard := SHARD.search(n)) is None or shard[1] == "00001"]


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _bits(name: str) -> int:
    """Of a file's quantisation: 4 of x-Q4_0.gguf, 16 of x-F16-00001-of-00002.gguf; 0 where it is not named."""
    tag = re.search(r"[-.]([A-Za-z0-9_]+)$", SHARD.sub("", name).removesuffix(".gguf"))
    return _first_number(tag[1]) if tag else 0


def _first_number(text: str) -> int:
    number = re.search(r"\d+", text)
    return int(number[0]) if number else 0
