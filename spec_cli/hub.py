"""Model files from Hugging Face, as llama.cpp takes them: `-hf user/repo[:quant]`, into the same cache."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_cli.errors import FileError, UsageError
from spec_cli.settings import Settings

# common/download.cpp: files with these words are never "the model"
NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
HEADS = ("mtp-", "eagle3-")  # heads for a model, as they are named beside it; the first kind counts
PREFERRED = ("Q4_K_M", "Q8_0")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def fetched(settings: Settings, say: Callable[[str], None]) -> Settings:
    """The settings with the files of -hf and -hfd, downloaded where they are not cached.

    Raises FileError for what cannot be had, UsageError for a file's name without a repository.
    """
    if settings.hf_file is not None and settings.hf_repo is None:
        raise UsageError(f"{settings.origins.get('hf_file', '-hff/--hf-file')}: needs -hf USER/REPO")
    if settings.hf_repo is not None:
        path = fetch(settings.hf_repo, settings.hf_file, settings, "-hf/--hf-repo", say)
        settings = replace(settings, model=path)
    if settings.hf_repo_draft is not None:  # -md is then the file's name there
        name = str(settings.model_draft) if settings.model_draft is not None else None
        path = fetch(settings.hf_repo_draft, name, settings, "-hfd/--hf-repo-draft", say, choose_draft)
        origins = {**settings.origins, "model_draft": settings.origins.get("hf_repo_draft", "-hfd")}
        settings = replace(settings, model_draft=path, origins=origins)
    return settings


def choose_file(names: Iterable[str], tag: str) -> str | None:
    """The file of a repository that a quantisation's name means; without one Q4_K_M, else Q8_0, else the first."""
    models = sorted(n for n in names if n.endswith(".gguf") and not any(word in n.lower() for word in NOT_MODELS))
    models = [n for n in models if (shard := _SHARD.search(n)) is None or shard[1] == "00001"]
    for wanted in (tag,) if tag else PREFERRED:
        for name in models:
            if re.search(rf"{re.escape(wanted)}[.-]", name, re.IGNORECASE):
                return name
    return None if tag or not models else models[0]


def choose_draft(names: Iterable[str], tag: str) -> str | None:
    """A head of this repository, else the file that `choose_file` takes (common/arg.cpp: heads outrank models)."""
    files = sorted(n for n in names if n.endswith(".gguf"))
    for word in HEADS:
        for name in files:
            if word in name.rsplit("/", 1)[-1] and re.search(
                rf"{re.escape(tag)}[.-]" if tag else "", name, re.IGNORECASE
            ):
                return name
    return choose_file(files, tag)


def shards_of(name: str) -> list[str]:
    """All files of a model that is split, or the one."""
    shard = _SHARD.search(name)
    if not shard:
        return [name]
    return [f"{name[: shard.start()]}-{i:05d}-of-{shard[2]}.gguf" for i in range(1, int(shard[2]) + 1)]


def fetch(
    spec: str, file: str | None, settings: Settings, flag: str, say: Callable[[str], None],
    choose: Callable[[Iterable[str], str], str | None] = choose_file,
) -> Path:  # fmt: skip
    """The path of a repository's model file in the cache."""
    repo, _, tag = spec.partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UsageError(f"{flag}: {spec!r} is not USER/REPO or USER/REPO:QUANT")
    import huggingface_hub

    hub: Any = huggingface_hub
    if settings.quiet:
        hub.utils.disable_progress_bars()
    cache = os.environ.get("LLAMA_CACHE")  # llama.cpp's own variable comes first, the hub's after it
    how: dict[str, Any] = {
        "repo_id": repo,
        "cache_dir": cache,
        "token": settings.hf_token,
        "local_files_only": settings.offline,
    }
    try:
        if file is None:
            if settings.offline:
                folder = Path(hub.snapshot_download(**how))
                names = [str(p.relative_to(folder)) for p in folder.rglob("*.gguf")]
            else:
                names = hub.HfApi(token=settings.hf_token).list_repo_files(repo)
            file = choose(names, tag)
            if file is None:
                what = f"{tag} among " if tag else ""
                found = ", ".join(sorted(n for n in names if n.endswith(".gguf"))) or "none"
                raise FileError(f"{flag}: {repo} has no model file {what}(GGUF files: {found})")
        if not settings.offline:
            say(f"{flag.partition('/')[0]} {repo}: {file}")
        paths = [Path(hub.hf_hub_download(filename=name, **how)) for name in shards_of(file)]
    except FileError:
        raise
    except Exception as error:  # its many ways of saying no
        words = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        hint = "" if settings.offline else " (--offline uses what is cached)"
        raise FileError(f"{flag}: {spec}: {words}{hint}") from None
    return paths[0]
