"""The files of a model that is split into shards, by their names: NAME-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re
from pathlib import Path

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
MOST = 1000  # no publisher has a hundred


def shards_of(name: str) -> list[str]:
    """All files of a model that is split, or the one."""
    shard = SHARD.search(name)
    if not shard or not 1 <= int(shard[2]) <= MOST:
        return [name]
    return [f"{name[: shard.start()]}-{i:05d}-of-{shard[2]}.gguf" for i in range(1, int(shard[2]) + 1)]


def size_of(path: Path) -> int:
    """Bytes of all its shards that are there."""
    return sum(shard.stat().st_size for shard in map(Path, shards_of(str(path))) if shard.is_file())
