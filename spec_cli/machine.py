"""What this process may use: memory and processors, with affinity and cgroup limits counted."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def _number(*names: str) -> list[int]:
    for name in names:
        try:
            return [int(word) for word in (_CGROUP / name).read_text().split()]
        except (OSError, ValueError):
            continue  # absent, or "max": no limit
    return []


def _file_cache() -> int:
    """Bytes of this group's files in memory: they count as used and are given back on demand."""
    for name in ("memory.stat", "memory/memory.stat"):
        try:
            pairs = dict(line.split() for line in (_CGROUP / name).read_text().splitlines())
            return sum(int(pairs.get(key, 0)) for key in ("inactive_file", "active_file"))
        except (OSError, ValueError):
            continue
    return 0


def free_memory() -> int:
    """Bytes that can be used before something is swapped or killed."""
    free = int(psutil.virtual_memory().available)
    limit = _number("memory.max", "memory/memory.limit_in_bytes")
    used = _number("memory.current", "memory/memory.usage_in_bytes")
    if limit and used:
        free = min(free, max(0, limit[0] - max(0, used[0] - _file_cache())))
    return free


def usable_cores() -> int:
    """Physical cores, at most as many as affinity and a CPU quota leave."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    quota = _number("cpu.max") or _number("cpu/cpu.cfs_quota_us") + _number("cpu/cpu.cfs_period_us")
    if len(quota) == 2 and quota[0] > 0 and quota[1] > 0:
        cores = min(cores, -(-quota[0] // quota[1]))
    return max(1, cores)
