"""The prompt as text: from -p, -f, or standard input; always valid UTF-8."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from spec_cli.errors import FileError, SpecError, UsageError
from spec_cli.settings import Settings

MOST_BYTES = 1 << 26  # no context holds more; a pipe may have no end
_ESCAPE = re.compile(rb"\\(n|r|t|'|\"|\\|x[0-9a-fA-F]{2})")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}


def user_text(settings: Settings) -> str:
    """What to answer. Standard input is read only when neither -p nor -f is given.

    Raises UsageError when there is nothing, when there are two prompts, or when it is not UTF-8.
    """
    if settings.prompt is not None and settings.file is not None:
        raise UsageError("-p and -f both give a prompt: use one")
    if settings.prompt is not None:
        return argument(settings.prompt, "-p/--prompt", settings.escape)
    if settings.file == "":
        raise UsageError("-f/--file: '' is not a file")
    if settings.file not in (None, "-"):
        return file_text(Path(settings.file or ""), "-f/--file")
    if sys.stdin is None or (settings.file is None and sys.stdin.isatty()):
        raise UsageError("no prompt: give -p TEXT or -f FILE, or pipe text in")
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileError(f"standard input: {error.strerror}") from None
    if not data:
        raise UsageError("no prompt: standard input is empty (-p TEXT or -f FILE give one)")
    return _file_text(data, "standard input", UsageError)


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
