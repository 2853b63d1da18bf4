"""What may be typed instead of a message: names, help, and what each does."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec_cli.chat.conversation import Conversation
from spec_cli.cli.prompt import argument, file_text
from spec_cli.cli.terminal import width
from spec_cli.drafters.table import BUILT
from spec_cli.errors import FileError, UsageError
from spec_cli.settings import Settings, flags, row_fields
from spec_cli.values import read

if TYPE_CHECKING:
    from spec_cli.cli.chat.shell import Shell

MOST_FILES = 100  # llama-cli's FILE_GLOB_MAX_RESULTS
ELSEWHERE = {
    "system_prompt": "/system TEXT sets it", "raw": "a conversation needs the template",
    "logprobs": "spec-cli generate --json prints them", "spec_type": "/spec TYPE sets it",
}  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One of them. words: what Tab offers behind it, None for files."""

    run: Callable[[Shell, str], None]
    argument: str
    help: str
    words: Callable[[], list[str]] | None = list


def run(shell: Shell, line: str) -> None:
    """Do what a line says. Raises UsageError for a command that there is not."""
    name, *more = line.split(None, 1)
    rest = "".join(more).strip()
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.7)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"unknown command: {name}{hint}: /help lists them; a blank before it makes it a message")
    if rest and not command.argument:
        raise UsageError(f"{name}: takes nothing, {rest!r} was given")
    if not rest and command.argument and not command.argument.startswith("["):
        raise UsageError(f"{name}: {command.argument} is missing")
    command.run(shell, rest)


def words(line: str) -> list[str] | None:
    """What Tab offers for a line so far; None: names of files."""
    name, blank, _ = line.partition(" ")
    if not blank:
        return [f"{name} " if command.argument else name for name, command in COMMANDS.items()]
    command = COMMANDS.get(name)
    return [] if command is None else None if command.words is None else command.words()


def _exit(shell: Shell, rest: str) -> None:
    shell.done = True


def _clear(shell: Shell, rest: str) -> None:
    shell.talk.conversation.clear()
    shell.pending = ""
    shell.tell("Chat history cleared.")


def _regen(shell: Shell, rest: str) -> None:
    shell.answer(shell.talk.regenerate)


def _undo(shell: Shell, rest: str) -> None:
    if shell.pending:
        shell.pending = ""
        shell.tell("taken back: what was read from files")
        return
    question = shell.talk.conversation.question or ""
    shell.talk.conversation.undo()
    shell.tell(f"taken back: {shorter(question)}")


def _edit(shell: Shell, rest: str) -> None:
    question = shell.talk.conversation.question
    if question is None:
        raise UsageError("/edit: there is no message yet")
    if rest:
        shell.ask_instead(rest)
    elif shell.keyboard.edits:
        shell.offered = question
    else:
        raise UsageError("/edit: TEXT is missing (on a terminal the last message comes back for editing)")


def _read(shell: Shell, rest: str) -> None:
    _read_before(shell, rest, "/read")


def _read_before(shell: Shell, name: str, command: str) -> None:
    text = _text(name, command)
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    shell.pending += f"--- File: {name} ---\n{text}\n"
    shell.tell(f"Loaded text from '{name}'")


def _path(name: str, command: str) -> Path:
    if "\0" in name:
        raise UsageError(f"{command}: {name!r} is not a path")
    return Path(os.path.realpath(os.path.expanduser(name)))


def _text(name: str, command: str) -> str:
    """A file's text. Its faults are the command's, and no reason to leave."""
    try:
        return file_text(_path(name, command), command)
    except FileError as error:
        raise UsageError(str(error)) from None


def _glob(shell: Shell, rest: str) -> None:
    pattern = os.path.expanduser(rest)
    found = sorted(islice((p for p in glob.iglob(pattern, recursive=True) if os.path.isfile(p)), MOST_FILES + 1))
    if not found:
        raise UsageError(f"/glob: {rest}: no file matches")
    for path in found[:MOST_FILES]:
        try:
            _read_before(shell, path, "/glob")
        except UsageError as error:
            shell.tell(f"left out: {error}")
    if len(found) > MOST_FILES:
        shell.tell(f"/glob: {rest}: more than {MOST_FILES} files match, the rest is left out")


def _system(shell: Shell, rest: str) -> None:
    conversation = shell.talk.conversation
    if rest:
        conversation.system = None if rest in ('""', "''") else rest
    shell.tell("no system message" if conversation.system is None else f"system message: {conversation.system}")


def _set(shell: Shell, rest: str) -> None:
    settings = shell.talk.settings
    if not rest:
        for name in _settable():
            if name in flags() and getattr(settings, name) != getattr(Settings(), name):
                shell.tell(f"{_spelling(name)} = {_shown(getattr(settings, name))}")
        return
    name, *more = rest.split(None, 1)
    field = _field(name)
    if more:
        shell.talk.change({field: _value(shell, field, more[0], f"/set {name}")}, "/set")
    shell.tell(f"{_spelling(field)} = {_shown(getattr(shell.talk.settings, field))}")


def _settable() -> list[str]:
    return [name for name in dict.fromkeys(row_fields().values()) if name not in ELSEWHERE]


def _field(name: str) -> str:
    """The field of a name, as a row of batch or a flag may spell it."""
    key = name.lstrip("-").replace("-", "_")
    short = {spelling.lstrip("-"): field for field, flag in flags().items() for spelling in flag.names}
    field = row_fields().get(key) or short.get(name.lstrip("-")) or short.get(key.replace("_", "-"))
    if field is None:
        near = difflib.get_close_matches(key, row_fields(), n=1)
        raise UsageError(f"/set: unknown name {name!r}" + (f" (did you mean {near[0]}?)" if near else ""))
    if field in ELSEWHERE:
        raise UsageError(f"/set {name}: {ELSEWHERE[field]}")
    if field not in _settable():
        raise UsageError(f"/set {name}: only at the start, it needs a new context or file ({flags()[field].name})")
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
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ";".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spec(shell: Shell, rest: str) -> None:
    start, changes = shell.talk.engine.settings, dict[str, Any]()
    rest_words = rest.split()
    while rest_words:
        word = rest_words.pop(0)
        if word == "n_max":
            if not rest_words:
                raise UsageError("/spec n_max: N is missing")
            changes["spec_draft_n_max"] = read("spec_draft_n_max", rest_words.pop(0), "/spec n_max")
        elif word == "on":
            changes |= {"spec_type": start.spec_type, "spec_draft_n_max": start.spec_draft_n_max}
        else:
            changes["spec_type"] = ("none",) if word == "off" else read("spec_type", word, "/spec")
    if changes:
        shell.talk.change(changes, "/spec")
    types, n_max = shell.talk.engine.require_possible(shell.talk.settings)
    cap = f", n_max {n_max}" if types and n_max is not None else ""
    shell.tell(f"speculation: {','.join(types) or 'none'}{cap}")


def _stats(shell: Shell, rest: str) -> None:
    from spec_cli.render import conversation_table

    if shell.talk.last is None:
        raise UsageError("/stats: there is no answer yet")
    for line in conversation_table(shell.talk, width()):
        shell.tell(line)


def _save(shell: Shell, rest: str) -> None:
    path = _path(rest, "/save")
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        if path not in shell.own_files and path.exists():
            raise UsageError(f"/save: {rest} exists already, and is not of this conversation: use another name")
        with beside.open("x", encoding="utf-8") as file:
            file.write(shell.talk.conversation.as_json())
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(f"/save: {rest}: {error.strerror}") from None
    shell.own_files.add(path)
    shell.tell(f"{_messages(shell.talk.conversation)} saved to {rest}")


def _load(shell: Shell, rest: str) -> None:
    text = _text(rest, "/load")
    try:
        shell.talk.conversation = Conversation.from_json(text)
    except UsageError as error:
        raise UsageError(f"/load: {rest}: {error}") from None
    shell.own_files.add(_path(rest, "/load"))
    hint = ": /regen answers the last one" if shell.talk.conversation.waits else ""
    shell.tell(f"{_messages(shell.talk.conversation)} loaded from {rest}{hint}")


def _messages(conversation: Conversation) -> str:
    n = len(conversation.messages)
    return "1 message" if n == 1 else f"{n} messages"


def _color(shell: Shell, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise UsageError(f"/color: {rest!r} is not on or off")
    shell.color(not shell.screen.color if not rest else rest == "on")


def _help(shell: Shell, rest: str) -> None:
    from spec_cli.render import command_table

    rows = [(f"{name} {command.argument}".rstrip(), command.help) for name, command in COMMANDS.items()]
    for line in command_table(rows, width()):
        shell.tell(line)


def shorter(text: str, most: int = 60) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


COMMANDS = {
    "/help": Command(_help, "", "This list."),
    "/exit": Command(_exit, "", "Leave; so do Ctrl-D and, twice, Ctrl-C."),
    "/clear": Command(_clear, "", "Forget all but the system message."),
    "/regen": Command(_regen, "", "Answer the last message anew."),
    "/undo": Command(_undo, "", "Take back the last message and its answer, or what was read for the next one."),
    "/edit": Command(_edit, "[TEXT]", "Ask the last message again in other words."),
    "/read": Command(_read, "FILE", "Put a text file before the next message.", None),
    "/glob": Command(_glob, "PATTERN", f"So for files that match, such as src/**/*.py, at most {MOST_FILES}.", None),
    "/system": Command(_system, "[TEXT]", 'Show or change the system message; "" is none.'),
    "/set": Command(
        _set, "[NAME [VALUE]]", "Show or change sampling and lengths, such as temp 0.7; default is as at the start.",
        lambda: [_spelling(name) for name in _settable()],
    ),
    "/spec": Command(
        _spec, "[off|on|TYPE,...|n_max N]", "Show or change how guesses are made; on is as at the start.",
        lambda: ["off", "on", "n_max", *BUILT],
    ),
    "/stats": Command(_stats, "", "Numbers of the last answer and of the whole conversation."),
    "/save": Command(_save, "FILE", "Write the messages to a file, as OpenAI's JSON.", None),
    "/load": Command(_load, "FILE", "Go on with the messages of such a file.", None),
    "/color": Command(_color, "[on|off]", "Colour accepted guesses and corrections.", lambda: ["on", "off"]),
}  # fmt: skip
