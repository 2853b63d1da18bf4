"""Model files from Hugging Face, as llama.cpp takes them: `-hf user/repo[:quant]`, into the same cache."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spec_cli.errors import FileError, SpecError, UsageError
from spec_cli.hub.choice import choose_draft, choose_file
from spec_cli.hub.refusal import reason
from spec_cli.hub.token import masked, token_of
from spec_cli.settings import Settings
from spec_cli.shards import shards_of

Say = Callable[[str], None]
Choose = Callable[[Iterable[str], str], str | None]


def fetched(settings: Settings, say: Say) -> Settings:
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
        choose = partial(choose_draft, types=settings.spec_type)
        path = fetch(settings.hf_repo_draft, name, settings, "-hfd/--hf-repo-draft", say, choose)
        origins = {**settings.origins, "model_draft": settings.origins.get("hf_repo_draft", "-hfd")}
        settings = replace(settings, model_draft=path, origins=origins)
    return settings


def fetch(spec: str, file: str | None, settings: Settings, flag: str, say: Say, choose: Choose = choose_file) -> Path:
    """The path of a repository's model file in the cache, the first one of a split model.

    Raises UsageError for what is no repository or no token, FileError for what cannot be had.
    """
    repo, _, tag = spec.partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UsageError(f"{flag}: {spec!r} is not USER/REPO or USER/REPO:QUANT")
    name = f"{flag.partition('/')[0]} {repo}"
    hub = _library(settings.quiet, lambda when: say(f"{name}: a request failed: trying again{when}"))
    cache = os.environ.get("LLAMA_CACHE") or None  # llama.cpp's own variable comes first, the hub's after it
    place, token = f"{flag}: {repo}", None
    try:
        if settings.offline or hub.constants.HF_HUB_OFFLINE:
            end = f": run it once without {'--offline' if settings.offline else 'HF_HUB_OFFLINE'}"
            folder = _cached(hub, repo, cache)
            if folder is None:
                raise FileError(f"{place} is not in the cache ({cache or hub.constants.HF_HUB_CACHE}){end}")
            names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
            return folder / _chosen(names, file, tag, choose, f"{flag}: the cache of {repo}", end)[0]
        token = token_of(settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = _listed(hub, repo, token)
            wanted = _chosen(names, file, tag, choose, place)
            say(f"{name}: {wanted[0]}")
            paths = [_downloaded(hub, repo, one, cache, token) for one in wanted]
    except SpecError:
        raise
    except Exception as error:  # its many ways of saying no
        secret = token or _implicit(hub)
        words = reason(error, repo, hub.constants.ENDPOINT, bool(secret))
        raise FileError(masked(f"{flag}: {spec}: {words}", [secret])) from None
    return paths[0]


def _chosen(names: list[str], file: str | None, tag: str, choose: Choose, place: str, end: str = "") -> list[str]:
    """The file that is asked for and, of a split model, all others. Raises FileError where one is not there."""
    end = f" (GGUF files: {', '.join(sorted(n for n in names if n.endswith('.gguf'))) or 'none'}){end}"
    file = choose(names, tag) if file is None else file
    if file is None:
        raise FileError(f"{place} has no model file{f' {tag}' if tag else ''}{end}")
    wanted = shards_of(file)
    for name in wanted:
        if name not in names:
            raise FileError(f"{place} has no file {name}{f', a part of {file}' if name != file else ''}{end}")
    return wanted


def _library(quiet: bool, retries: Say) -> Any:
    """huggingface_hub, which says nothing on standard error by itself but how far a download is."""
    if quiet:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # read as it is imported
    import huggingface_hub.constants
    import huggingface_hub.errors  # its submodules need not be there before they are imported
    import huggingface_hub.utils.logging  # adds a handler of its own as it is imported

    class Retries(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if found := re.search(r"(Retrying in|Waiting) ([\d.]+)s|Trying to resume", record.getMessage()):
                retries(f" in {float(found[2]):.0f} s" if found[2] else "")

    logger = logging.getLogger("huggingface_hub")
    logger.handlers, logger.propagate = [Retries()], False
    return huggingface_hub


def _cached(hub: Any, repo: str, cache: str | None) -> Path | None:
    """The folder of the cache with the files of a repository."""
    try:  # it asks for no file: whoever downloaded a part of a repository has a part
        return Path(hub.snapshot_download(repo, cache_dir=cache, local_files_only=True, allow_patterns=[]))
    except hub.errors.LocalEntryNotFoundError:
        return None


def _listed(hub: Any, repo: str, token: str | None) -> list[str]:
    """The names of a repository's files, asked for once: a listing page by page is tried six times, for 23 s."""
    told = hub.HfApi().model_info(repo, timeout=hub.constants.HF_HUB_ETAG_TIMEOUT, token=token)
    return [one.rfilename for one in told.siblings or ()]


def _downloaded(hub: Any, repo: str, name: str, cache: str | None, token: str | None) -> Path:
    """One file in the cache."""
    if not isinstance(hub.try_to_load_from_cache(repo, name, cache_dir=cache), str):
        hub.get_hf_file_metadata(hub.hf_hub_url(repo, name), token=token)  # refused at once, not after 23 s
    return Path(hub.hf_hub_download(repo, name, cache_dir=cache, token=token))


def _implicit(hub: Any) -> str:
    """The token that huggingface_hub takes by itself, of its login."""
    with suppress(Exception):
        return hub.get_token() or ""
    return ""
