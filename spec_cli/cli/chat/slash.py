"""What may be typed instead of a message: names, help, and what each does."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_cli.cli.chat import files, options
from spec_cli.cli.terminal import width
from spec_cli.drafters.table import BUILT
from spec_cli.errors import UsageError

if TYPE_CHECKING:
    from spec_cli.cli.chat.shell import Shell


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
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        near = difflib.get_close_matches(name, (*COMMANDS, *ALIASES), n=1, cutoff=0.7)
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
    shell.tell(f"taken back: {_shorter(question)}")


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


def _system(shell: Shell, rest: str) -> None:
    conversation = shell.talk.conversation
    if rest:
        conversation.system = None if rest in ('""', "''") else rest
    shell.show("no system message" if conversation.system is None else f"system message: {conversation.system}")


def _set(shell: Shell, rest: str) -> None:
    """Ollama's `/set system` and `/set parameter` too."""
    first, _, more = rest.partition(" ")
    if first == "system":
        _system(shell, more.strip())
    else:
        options.set_option(shell, more.strip() if first == "parameter" else rest)


def _show(shell: Shell, rest: str) -> None:
    if rest == "system":
        _system(shell, "")
    elif rest == "parameters":
        options.set_option(shell, "")
    elif rest in ("", "info"):
        shell.show(shell.model)
        options.speculation(shell, "")
    else:
        raise UsageError(f"/show: {rest!r} is not one of {', '.join(SHOWN)}")


def _stats(shell: Shell, rest: str) -> None:
    from spec_cli.render import conversation_table

    if shell.talk.last is None:
        raise UsageError("/stats: there is no answer yet")
    for line in conversation_table(shell.talk, width() - 1):
        shell.show(line)


def _color(shell: Shell, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise UsageError(f"/color: {rest!r} is not on or off")
    shell.color(not shell.screen.color if not rest else rest == "on")


def _help(shell: Shell, rest: str) -> None:
    from spec_cli.render import command_table

    rows = [(f"{name} {command.argument}".rstrip(), command.help) for name, command in COMMANDS.items()]
    for line in command_table(rows, width() - 1):
        shell.show(line)
    shell.show('\nSeveral lines: a trailing \\, Alt-Enter, or a block between """ and """. Ctrl-C stops an answer.')


def _shorter(text: str, most: int = 60) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


SHOWN = ("info", "system", "parameters")
ALIASES = {"/?": "/help", "/bye": "/exit", "/quit": "/exit"}
COMMANDS = {
    "/help": Command(_help, "", "This list."),
    "/exit": Command(_exit, "", "Leave; so do exit or quit alone on a line, Ctrl-D and, twice, Ctrl-C."),
    "/clear": Command(_clear, "", "Forget all but the system message."),
    "/regen": Command(_regen, "", "Answer the last message anew."),
    "/undo": Command(_undo, "", "Take back the last message and its answer, or what was read for the next one."),
    "/edit": Command(_edit, "[TEXT]", "Ask the last message again in other words."),
    "/read": Command(files.read, "FILE", "Put a text file before the next message.", None),
    "/glob": Command(files.find, "PATTERN", "Put all files that match before it, such as src/**/*.py.", None),
    "/system": Command(_system, "[TEXT]", 'Show or change the system message; "" is none.'),
    "/set": Command(
        _set, "[NAME [VALUE]]",
        "Show or change sampling and lengths, such as temp 0.7; default is as at the start.", options.names,
    ),
    "/spec": Command(
        options.speculation, "[off|on|TYPE,...|n_max N]", "Show or change how guesses are made; on is as at the start.",
        lambda: ["off", "on", "n_max", *BUILT],
    ),
    "/show": Command(_show, "[system|parameters]", "Show the model, or what was set.", lambda: list(SHOWN)),
    "/stats": Command(_stats, "", "Numbers of the last answer and of the whole conversation."),
    "/save": Command(files.save, "FILE", "Write the messages to a file, as OpenAI's JSON.", None),
    "/load": Command(files.load, "FILE", "Go on with the messages of such a file.", None),
    "/color": Command(_color, "[on|off]", "Colour accepted guesses and corrections.", lambda: ["on", "off"]),
}  # fmt: skip
