"""The options of `Settings` as a Typer command."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from spec_cli.cli.argv import NOTE
from spec_cli.config import load
from spec_cli.errors import SpecError, UsageError
from spec_cli.settings import Settings, flags, is_list, is_switch

# What `--help` shows; `--help-all` shows all. Flags of one command only are always shown.
_USUAL = """
    model model_draft hf_repo gpu_layers gpu_layers_draft lora config ctx_size batch_size threads flash_attn
    cache_type_k cache_type_v file system_prompt raw chat_template_file reasoning predict stop seed temp top_k top_p
    min_p
    repeat_penalty ignore_eos grammar_file json_schema spec_type spec_draft_n_max spec_draft_p_min
    spec_ngram_simple_size_n spec_ngram_simple_size_m logprobs output verbose quiet
"""
USUAL = frozenset(_USUAL.split())


class PanelCommand(TyperCommand):
    """Help by panel, as plain text that fits 80 columns: the short and the long name of each flag."""

    everything = False

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the table of flags instead of Typer's list."""
        panels: dict[str, list[tuple[str, str]]] = {}
        known = flags(ctx.info_name)
        for name, flag in known.items():
            if not (self.everything or name in USUAL or flag.commands):
                continue
            short = [n for n in flag.names if not n.startswith("--")][:1]
            spelling = ", ".join([*short, flag.name]) + (f" {flag.metavar}" if flag.metavar else "")
            panels.setdefault(flag.panel, []).append((spelling, _help(name)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows, col_max=28)
        if not self.everything:
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows all {len(known)} flags.")


def with_options(command: Callable[[dict[str, Any]], int | None]) -> Callable[..., int | None]:
    """A Typer command with every option of the table; `command` gets what was given, as text by field."""

    def run(*, note: list[str] | None, **values: Any) -> int | None:
        given = {name: _one(name, value) for name, value in values.items() if value not in (None, [])}
        return command({**given, "notes": tuple(note or ())})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    note = Annotated[list[str] | None, typer.Option(NOTE, hidden=True)]
    parameters = [_parameter(name) for name in flags(command.__name__)]
    parameters.append(inspect.Parameter("note", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=note))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _one(name: str, value: Any) -> Any:
    """What a repeated flag means: a list goes on, --spec-type too, otherwise the last one wins.

    Raises UsageError for a second -p: no text of a person's may vanish.
    """
    if not isinstance(value, list) or is_list(name):
        return value
    if name == "prompt" and len(value) > 1:
        raise UsageError("-p/--prompt: given twice: one text holds the prompt (-f FILE may be repeated)")
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
        if name == "model" or flag.choices:
            common["autocompletion"] = lambda incomplete: [w for w in _words(name) if w.startswith(incomplete)]
        kind = Annotated[list[str] | None, typer.Option(*declarations, metavar=flag.metavar, **common)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _words(name: str) -> list[str]:
    """What a shell may offer: words of a list, names of models. Files are the shell's own."""
    if name != "model":
        return list(flags()[name].choices)
    try:
        return list(load(None, os.environ).names)
    except SpecError:
        return []


def flag_table() -> str:
    """Every flag as a table in Markdown."""
    rows = ["| flag | environment | default | |", "|---|---|---|---|"]
    for name, flag in flags().items():
        only = f" Only {' and '.join(f'`{command}`' for command in flag.commands)}." if flag.commands else ""
        spellings = ", ".join(f"`{spelling}`" for spelling in (*flag.names, *flag.off))
        meta = f" {flag.metavar}" if flag.metavar else ""
        cells = (spellings + meta, f"`{flag.env}`" if flag.env else "", _default(name), flag.help + only)
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(rows)


def _default(name: str) -> str:
    flag = flags()[name]
    if flag.shown or is_switch(name):
        return flag.shown
    value = getattr(Settings(), name)
    return "" if value in (None, ()) else f"{value:g}" if isinstance(value, float) else str(value)


def _help(name: str) -> str:
    flag = flags()[name]
    default = _default(name)
    return flag.help + (f" [default: {default}]" if default else "") + (f" [env: {flag.env}]" if flag.env else "")
