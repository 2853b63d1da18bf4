"""`spec-cli models`: what models.toml holds, and where each value of a run comes from."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from spec_cli.cli.terminal import Output
from spec_cli.config import default_path, load, resolve
from spec_cli.errors import FileError, SpecError, did_you_mean
from spec_cli.settings import RANDOM_SEED, SAMPLERS, Settings, flags

app = typer.Typer(help="Named models of models.toml.", rich_markup_mode=None)
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A models.toml instead of the user's.")]


def _print(lines: list[str]) -> None:
    with Output(None) as output:
        output.write("".join(f"{line}\n" for line in lines))


@app.command("list")
def list_(config: Config = None) -> None:
    """Names that -m takes, and their files."""
    models = load(Path(config) if config else None, os.environ).names
    width = max(map(len, models), default=0)
    rows = []
    for name in models:
        settings = resolve({"model": name, **({"config": config} if config else {})}, os.environ)
        missing = "" if settings.hf_repo or (settings.model and settings.model.is_file()) else "  (no such file)"
        rows.append(f"{name:<{width}}  {settings.hf_repo or settings.model}{missing}")
    _print(rows)


@app.command()
def show(name: str, config: Config = None) -> None:
    """Every value of a run with -m NAME and where it comes from, as a table of models.toml."""
    models = load(Path(config) if config else None, os.environ).names
    if name not in models:
        hint = did_you_mean(name, models)
        raise FileError(f"models show: there is no model {name!r} (names: {', '.join(models) or 'none'}){hint}")
    settings = resolve({"model": name, **({"config": config} if config else {})}, os.environ)
    rows = []
    becomes = _becomes(settings)
    for field, flag in flags().items():
        if not flag.keys:
            continue
        value, origin = getattr(settings, field), settings.origins.get(field)
        if isinstance(value, Path) and (field != "model_draft" or not settings.hf_repo_draft):  # else a name there
            value = os.path.abspath(value)
        text = f"{flag.keys[0]} = {_toml(_in_words(field, value))}"
        if origin is None:  # a comment: what nobody set stays as automatic as it is when this is read back
            value = becomes.get(field, value)
            unset = value is None or value == ()
            text = f"# {flag.keys[0]} is not set" if unset else f"# {flag.keys[0]} = {_toml(_in_words(field, value))}"
            said = not unset and (isinstance(value, tuple) or flag.shown.partition(":")[0] in text)
            origin = "built in" if said or not flag.shown else f"built in: {flag.shown}"
        rows.append((text, "-m" if origin.startswith("-m") else origin))
    width = min(48, max(len(text) for text, _ in rows))
    _print([f"{text:<{width}}  # {origin}" for text, origin in rows])


@app.command()
def path(config: Config = None) -> None:
    """The models.toml that is read."""
    _print([str(default_path(Path(config) if config else None, os.environ))])


def _becomes(settings: Settings) -> dict[str, Any]:
    """What automatic values are in a run, as far as that is known before loading."""
    from spec_cli.machine import usable_cores  # loads psutil

    threads = settings.threads if settings.threads > 0 else usable_cores()
    batch = settings.threads_batch if settings.threads_batch > 0 else threads
    found = {"threads": threads, "threads_batch": batch, "threads_draft": threads, "threads_batch_draft": batch}
    n_ctx = settings.ctx_size or (_own_context(settings.model) if settings.model else None)
    return {**found, "ctx_size": n_ctx, "ctx_size_draft": n_ctx}


def _own_context(path: Path) -> int | None:
    """The context that a file was made for, None where it does not tell."""
    from spec_cli.llama.header import check_file  # loads llama.cpp

    try:
        return check_file(path, "target").n_ctx or None
    except SpecError:
        return None  # a run says why


def _in_words(field: str, value: Any) -> Any:
    """A value as its flag takes it: `auto` rather than -1."""
    flag = flags()[field]
    if field == "sampler_seq" and value is not None:
        return "".join(SAMPLERS[name] for name in value)
    if field == "seed" and value == RANDOM_SEED:
        return -1
    for word in (*flag.choices, *flag.metavar.split("|")) if flag.parse and isinstance(value, int) else ():
        with suppress(ValueError, KeyError):
            if flag.parse and flag.parse(word) == value:
                return word
    return str(value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    """A value of TOML: JSON, but for a character that only JSON lets pass."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
