"""`spec-cli docs`: the pages behind README, where the tool is installed."""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import typer

from spec_cli.cli.terminal import Output
from spec_cli.errors import UsageError

PAGES = {
    "flags": "every flag, its environment name and default",
    "drafters": "ways of guessing, what they need and what they cost",
    "chat": "conversations: typing, commands, thinking, pipes",
    "batch": "rows, results, resuming",
    "differences": "where spec-cli differs from llama-server, and why",
}


def page(name: str) -> str:
    """A page as Markdown. Raises UsageError where there is none of this name."""
    if name not in PAGES:
        raise UsageError(f"docs: there is no page {name!r} (pages: {', '.join(PAGES)})")
    return resources.files("spec_cli").joinpath("docs", f"{name}.md").read_text(encoding="utf-8")


def docs(name: Annotated[str, typer.Argument(metavar="[PAGE]", show_default=False)] = "") -> None:
    """Print a page of the documentation (Markdown); without a name, what there is."""
    width = max(map(len, PAGES))
    text = page(name) if name else "".join(f"{name:<{width}}  {what}\n" for name, what in PAGES.items())
    with Output(None) as output:
        output.write(text)
