"""The options of `Settings` as a Typer command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from spec_cli.settings import Settings, flags, is_list, is_switch


class PanelCommand(TyperCommand):
    """Help by panel, as plain text that fits 80 columns: the short and the long name of each flag."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the table of flags instead of Typer's list."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, flag in flags(ctx.info_name).items():
            short = [n for n in flag.names if not n.startswith("--")][:1]
            spelling = ", ".join([*short, flag.name]) + (f" {flag.metavar}" if flag.metavar else "")
            panels.setdefault(flag.panel, []).append((spelling, _help(name)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows, col_max=28)


def with_options(command: Callable[[dict[str, Any]], int | None]) -> Callable[..., int | None]:
    """A Typer command with every option of the table; `command` gets what was given, as text by field."""

    def run(**values: Any) -> int | None:
        return command({name: _one(name, value) for name, value in values.items() if value not in (None, [])})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    parameters = [_parameter(name) for name in flags(command.__name__)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _one(name: str, value: Any) -> Any:
    """What a repeated flag means: a list goes on, --spec-type too, otherwise the last one wins."""
    if not isinstance(value, list) or is_list(name):
        return value
    return ",".join(value) if name == "spec_type" else value[-1]


def _parameter(name: str) -> inspect.Parameter:
    flag = flags()[name]
    declarations = [flag.name, *(other for other in flag.names if other != flag.name)]
    common: dict[str, Any] = {"help": flag.help, "show_default": False}
    if is_switch(name):
        spelling = f"--no-{flag.name[2:]}" if flag.off else ""
        on = [f"{flag.name}/{spelling}" if spelling else flag.name, *declarations[1:]]
        kind: Any = Annotated[bool | None, typer.Option(*on, **common)]
    else:
        kind = Annotated[list[str] | None, typer.Option(*declarations, metavar=flag.metavar, **common)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _help(name: str) -> str:
    flag = flags()[name]
    default = flag.shown
    if not default and not is_switch(name):
        value = getattr(Settings(), name)
        default = "" if value in (None, ()) else f"{value:g}" if isinstance(value, float) else str(value)
    return flag.help + (f" [default: {default}]" if default else "") + (f" [env: {flag.env}]" if flag.env else "")
