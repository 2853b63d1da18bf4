"""`spec-cli models`: what models.toml holds, and where each value of a run comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from spec_cli.cli.terminal import Output
from spec_cli.config import default_path, load, resolve
from spec_cli.errors import FileError
from spec_cli.settings import flags

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
    """Every value of a run with -m NAME and where it comes from, as TOML."""
    models = load(Path(config) if config else None, os.environ).names
    if name not in models:
        raise FileError(f"models show: there is no model {name!r} (names: {', '.join(models) or 'none'})")
    settings = resolve({"model": name, **({"config": config} if config else {})}, os.environ)
    rows = []
    for field, flag in flags().items():
        if flag.keys:
            origin, value = settings.origins.get(field, "built in"), getattr(settings, field)
            text = f"{flag.keys[0]} = {_toml(value)}" if value is not None else f"# {flag.keys[0]} is not set"
            rows.append((text, "-m" if origin.startswith("-m") else origin))
    width = min(48, max(len(text) for text, _ in rows))
    _print([f"{text:<{width}}  # {origin}" for text, origin in rows])


@app.command()
def path(config: Config = None) -> None:
    """The models.toml that is read."""
    _print([str(default_path(Path(config) if config else None, os.environ))])


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
