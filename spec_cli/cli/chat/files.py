"""Commands that read and write files: texts for the next message, whole conversations."""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from spec_cli.chat.conversation import Conversation
from spec_cli.cli.prompt import file_text
from spec_cli.cli.terminal import counted
from spec_cli.errors import FileError, UsageError

if TYPE_CHECKING:
    from spec_cli.cli.chat.shell import Shell

MOST_FILES = 100  # llama-cli's FILE_GLOB_MAX_RESULTS


def read(shell: Shell, rest: str) -> None:
    """Put a text file before the next message."""
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


def find(shell: Shell, rest: str) -> None:
    """So for the files that match a pattern."""
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


def save(shell: Shell, rest: str) -> None:
    """Write the messages to a new file, to one of this conversation, or to a device."""
    path, text = _path(rest, "/save"), shell.talk.conversation.as_json()
    try:
        if path.is_file() and path.stat().st_size and path not in shell.own_files:
            raise UsageError(f"/save: {rest} exists, and is not of this conversation: give another name")
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_text(text, "utf-8")
        else:
            _replace(path, text)
            shell.own_files.add(path)
    except OSError as error:
        raise UsageError(f"/save: {rest}: {error.strerror}") from None
    shell.tell(f"{counted(len(shell.talk.conversation.messages), 'message')} saved to {rest}")


def _replace(path: Path, text: str) -> None:
    """Let a file have this text, or stay as it was."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def load(shell: Shell, rest: str) -> None:
    """Go on with the messages of a file."""
    text = _text(rest, "/load")
    try:
        shell.talk.conversation = Conversation.from_json(text)
    except UsageError as error:
        raise UsageError(f"/load: {rest}: {error}") from None
    shell.own_files.add(_path(rest, "/load"))
    hint = ": /regen answers the last one" if shell.talk.conversation.waits else ""
    shell.tell(f"{counted(len(shell.talk.conversation.messages), 'message')} loaded from {rest}{hint}")
