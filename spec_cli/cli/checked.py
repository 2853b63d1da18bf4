"""What can be said about the settings before a model is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_cli.cli.prompt import argument, file_text
from spec_cli.cli.terminal import same_file
from spec_cli.errors import UsageError
from spec_cli.settings import Settings
from spec_cli.shards import shards_of

_GRAMMARS = ("grammar", "grammar_file", "json_schema", "json_schema_file")


def _with_grammar(settings: Settings) -> Settings:
    """The grammar or schema read from its file. There may be one."""
    given = [name for name in _GRAMMARS if getattr(settings, name) is not None]
    if len(given) > 1:
        raise UsageError(" and ".join(settings.origins.get(name, name) for name in given) + ": give one of them")
    if not given or not given[0].endswith("_file"):
        return settings
    name, path = given[0], getattr(settings, given[0])
    origin, target = settings.origins.get(name, name), name.removesuffix("_file")
    changes: dict[str, Any] = {target: file_text(path, origin), name: None}
    return replace(settings, **changes, origins={**settings.origins, target: f"{origin}: {path}"})


def _with_template(settings: Settings) -> Settings:
    """The chat template read from its file. Raises UsageError for a name that is no template."""
    text, file = settings.chat_template, settings.chat_template_file
    origin = settings.origins.get("chat_template", "--chat-template")
    if file is not None:
        file_origin = settings.origins.get("chat_template_file", "--chat-template-file")
        if text is not None:
            raise UsageError(f"{origin} and {file_origin}: give one of them")
        text = file_text(file, file_origin)
    elif text is not None and text != "chatml" and "{" not in text:
        raise UsageError(f"{origin}: {text!r} is no Jinja template (of llama.cpp's names there is chatml)")
    return replace(settings, chat_template=text, chat_template_file=None)


def checked(settings: Settings) -> Settings:
    """The settings with their texts read. Raises UsageError for texts and files that cannot be used."""
    stops = tuple(argument(stop, "--stop", settings.escape) for stop in settings.stop)
    if "" in stops:
        raise UsageError(f"{settings.origins.get('stop', '--stop')}: an empty text would end every answer at once")
    breakers = tuple(argument(b, "--dry-sequence-breaker", settings.escape) for b in settings.dry_sequence_breaker)
    system = settings.system_prompt
    if system is not None:
        system = argument(system, "-sys/--system-prompt", escape=False)
        if settings.raw:
            where = settings.origins.get("system_prompt", "-sys/--system-prompt")
            raise UsageError(f"{where}: needs the chat template, and --raw leaves it out")
    settings = _with_template(_with_grammar(settings))
    inputs: dict[str, Path | str | int | None] = {
        "-m": settings.model, "-md": settings.model_draft, "--config": settings.config, "standard input": 0,
        "standard error": 2,
    }  # fmt: skip
    outputs = {"-o/--output": settings.output, "--stats": settings.stats}
    if settings.output and settings.stats:
        beside = settings.output.with_name(settings.output.name + ".meta.json")
        if os.path.realpath(settings.stats) in (os.path.realpath(settings.output), os.path.realpath(beside)):
            raise UsageError(f"--stats: {settings.stats} is written by -o {settings.output} too")
    for flag, path in outputs.items():
        if path and os.path.isfile(path):
            others = inputs if flag == "-o/--output" else {**inputs, "-o": settings.output}
            for name, other in (*others.items(), *(("-f", file) for file in settings.file)):
                files = shards_of(str(other)) if isinstance(other, Path) else [other]
                if any(file is not None and same_file(path, file) for file in files):
                    raise UsageError(f"{flag}: {path} is the file of {name}")
    return replace(settings, stop=stops, dry_sequence_breaker=breakers, system_prompt=system)
