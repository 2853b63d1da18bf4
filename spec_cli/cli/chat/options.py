"""Commands that change how answers are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spec_cli.cli.prompt import argument
from spec_cli.errors import UsageError, did_you_mean
from spec_cli.settings import (
    CONTEXT,
    MODEL,
    RANDOM_SEED,
    SPECULATION,
    Settings,
    flags,
    row_fields,
)  # fmt: skip
from spec_cli.values import read

if TYPE_CHECKING:
    from spec_cli.cli.chat.shell import Shell

ELSEWHERE = {
    "system_prompt": "/system TEXT sets it", "raw": "a conversation needs the template",
    "logprobs": "spec-cli generate --json prints them", "spec_type": "/spec TYPE sets it",
    "prompt": "what you type is the prompt", "file": "/read FILE reads one", "color": "/color turns them on or off",
    "output": "the transcript is begun at the start (-o)", "json": "/save FILE writes the messages as JSON",
    "sampler_seq": "samplers takes its letters too", "grammar_file": "grammar takes the grammar itself",
    "json_schema_file": "json-schema takes the schema itself",
    "context_shift": "only at the start (--context-shift); /clear makes room",
    "spec_ngram_simple_min_hits": "it is without effect", "debug": "only at the start, for errors that end the chat",
    "config": "it is read at the start",
    "verbose": "only at the start (-v); /stats shows the numbers at any time",
}  # fmt: skip
_BEFORE = {
    MODEL: "it needs a new context or file", CONTEXT: "it needs a new context or file",
    SPECULATION: "what guesses is made with it",
}  # fmt: skip

OLLAMA = {"num_predict": "predict", "num_ctx": "ctx_size"}


def set_option(shell: Shell, rest: str) -> None:
    """Show or change what a request may set."""
    settings = shell.talk.settings
    if not rest:
        for name in _settable():
            if name in flags() and getattr(settings, name) != getattr(Settings(), name):
                shell.show(f"{_spelling(name)} = {_shown(getattr(settings, name))}")
        return
    name, *more = rest.split(None, 1)
    field = _field(name)
    if more:
        shell.talk.change({field: _value(shell, field, more[0], f"/set {name}")}, "/set")
    shell.show(f"{_spelling(field)} = {_shown(getattr(shell.talk.settings, field))}")


def names() -> list[str]:
    """What `/set` takes."""
    return [_spelling(name) for name in _settable()]


def _settable() -> list[str]:
    return [name for name in dict.fromkeys(row_fields().values()) if name not in ELSEWHERE]


def _field(name: str) -> str:
    """The field of a name, as a row of batch, a flag or Ollama may spell it."""
    name = OLLAMA.get(name, name)
    key = name.lstrip("-").replace("-", "_")
    short = {spelling.lstrip("-"): field for field, flag in flags().items() for spelling in flag.names}
    field = row_fields().get(key) or short.get(name.lstrip("-")) or short.get(key.replace("_", "-"))
    if field is None:
        raise UsageError(f"/set: unknown name {name!r}{did_you_mean(key, row_fields())}")
    if field in ELSEWHERE:
        raise UsageError(f"/set {name}: {ELSEWHERE[field]}")
    if field not in _settable():
        flag = flags()[field]
        if "chat" not in (flag.commands or ("chat",)):
            raise UsageError(f"/set {name}: it is one of spec-cli {flag.commands[0]}")
        why = f", {_BEFORE[flag.panel]}" if flag.panel in _BEFORE else ""
        raise UsageError(f"/set {name}: only at the start{why} ({flag.name})")
    return field


def _value(shell: Shell, field: str, text: str, origin: str) -> Any:
    if text == "default":
        return getattr(shell.talk.engine.settings, field)
    if field == "stop":
        text = argument(text, origin, shell.talk.settings.escape)
    return read(field, text, origin)


def _spelling(field: str) -> str:
    return flags()[field].name[2:]


def _shown(value: Any) -> str:
    if value in (None, RANDOM_SEED):
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ";".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def speculation(shell: Shell, rest: str) -> None:
    """Show or change how guesses are made."""
    start, changes = shell.talk.engine.settings, dict[str, Any]()
    rest_words = rest.split()
    while rest_words:
        word = rest_words.pop(0).lower()
        if word == "n_max":
            if not rest_words:
                raise UsageError("/spec n_max: N is missing")
            changes["spec_draft_n_max"] = read("spec_draft_n_max", rest_words.pop(0), "/spec n_max")
        elif word == "on":
            changes |= {"spec_type": start.spec_type, "spec_draft_n_max": start.spec_draft_n_max}
        else:
            changes["spec_type"] = read("spec_type", word, "/spec")
    if changes:
        shell.talk.change(changes, "/spec")
    types, n_max = shell.talk.engine.require_possible(shell.talk.settings)
    cap = f", n_max {n_max}" if types and n_max is not None else ""
    shell.show(f"speculation: {','.join(types) or 'none'}{cap}")
