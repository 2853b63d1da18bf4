"""The prompt as text: from -p, -f and standard input; always valid UTF-8."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from spec_cli.cli import standard_input
from spec_cli.cli.terminal import same_file
from spec_cli.errors import FileError, SpecError, UsageError
from spec_cli.settings import Settings

MOST_BYTES = 1 << 26  # no context holds more; a pipe may have no end
_STDIN = "standard input"
_ESCAPE = re.compile(rb"\\(n|r|t|'|\"|\\|x[0-9a-fA-F]{2})")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}


@dataclass(frozen=True)
class _Part:
    """A text of the prompt: what gave it, in full and as `prompt:` lists it."""

    name: str
    listed: str
    text: str


def user_text(settings: Settings, tell: Callable[[str], None], *, joins: bool = True) -> str:
    """What to answer: -p, each -f in the order given, then what was piped in; a blank line between them.

    joins: whether standard input belongs to the prompt also where -p or -f gives one.
    Raises UsageError when there is nothing to answer, or when it is not UTF-8; FileError for a file.
    """
    parts = []
    if settings.prompt is not None:
        parts.append(_Part("-p/--prompt", "-p", argument(settings.prompt, "-p/--prompt", settings.escape)))
    inputs = [name for name in settings.file if _is_standard_input(name)]
    if len(inputs) > 1:
        raise UsageError(f"-f/--file: {' and '.join(inputs)}: standard input can be read once")
    for name in settings.file:
        parts.append(_piped(tell) if name in inputs else _from_file(name))
    if not parts and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("no prompt: give -p TEXT or -f FILE, or pipe text in")
    if not parts:
        parts.append(_piped(tell))
    elif joins and not inputs and standard_input.is_ours():
        piped = _piped(tell)
        parts += [piped] if piped.text else []
    return _joined(parts, settings.raw, tell)


def _joined(parts: Seq[_Part], raw: bool, tell: Callable[[str], None]) -> str:
    """One text of all parts. raw: blank text is text. Raises UsageError where there is none."""
    full = [part for part in parts if part.text]
    text = "\n\n".join(part.text for part in full)
    if not (text if raw else text.strip()):
        names = " and ".join(part.name for part in parts)
        what = "blank (--raw continues it as it is)" if text else "empty"
        raise UsageError(f"no prompt: {names} {'are' if len(parts) > 1 else 'is'} {what}")
    for part in parts:
        if not part.text:
            tell(f"{part.name} is empty: it adds nothing to the prompt")
    if len(full) > 1 and any(part.name == _STDIN for part in full):
        tell(f"prompt: {', then '.join(part.listed for part in full)}")
    return text


def _is_standard_input(name: str) -> bool:
    """Whether -f means standard input, by `-` or by a name such as /dev/stdin."""
    fd = standard_input.descriptor()
    return name == "-" or (bool(name) and fd is not None and same_file(Path(name), fd))


def _piped(tell: Callable[[str], None]) -> _Part:
    if sys.stdin is None:
        raise UsageError("no prompt: standard input is closed")
    data = standard_input.whole(MOST_BYTES + 1, tell)
    size = f"{len(data):,} byte{'s' * (len(data) != 1)}"
    return _Part(_STDIN, f"{size} of {_STDIN}", _file_text(data, _STDIN, UsageError))


def _from_file(name: str) -> _Part:
    if not name:
        raise UsageError("-f/--file: '' is not a file")
    return _Part(f"-f/--file: {name}", f"-f {name}", file_text(Path(name), "-f/--file"))


def file_text(path: Path, flag: str) -> str:
    """A text file. Raises FileError that names the flag."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileError(f"{flag}: {path}: {error.strerror}") from None
    return _file_text(data, f"{flag}: {path}", FileError)


def argument(text: str, flag: str, escape: bool) -> str:
    """A command line text with its escapes read (common/common.cpp, string_process_escapes)."""
    data = text.encode("utf-8", "surrogateescape")
    if escape:
        data = _ESCAPE.sub(lambda m: _PLAIN.get(m[1]) or bytes([int(m[1][1:], 16)]), data)
    return utf8(data, flag, UsageError)


def _file_text(data: bytes, name: str, kind: type[SpecError]) -> str:
    """File contents without a byte order mark and one final newline."""
    if len(data) > MOST_BYTES:
        raise kind(f"{name}: more than {MOST_BYTES >> 20} MiB are no prompt")
    text = utf8(data, name, kind).removeprefix("\ufeff")
    return text[:-1].removesuffix("\r") if text.endswith("\n") else text


def utf8(data: bytes, name: str, kind: type[SpecError]) -> str:
    """The bytes as text. Raises an error of this kind that names where they are from."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise kind(f"{name}: not UTF-8 at byte {error.start} (0x{data[error.start]:02x})") from None
