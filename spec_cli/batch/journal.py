"""The file of answers: one line a row, appended as they are made, and gone on with after any end.

FILE.meta.json beside it says which settings made it. Each record has the hash of its row, so that
an answer is never taken for that of another row.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from spec_cli.errors import FileError, UsageError
from spec_cli.settings import RANDOM_SEED, Settings, flags
from spec_cli.shards import size_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def binding(settings: Settings) -> dict[str, Any]:
    """The settings that make an answer what it is, as JSON values by flag."""
    values: dict[str, Any] = {}
    for name, flag in flags("batch").items():
        value = getattr(settings, name)
        if not flag.shapes_answers:
            continue
        if isinstance(value, Path):
            size = f" ({size_of(value)} bytes)" if value.is_file() else ""
            value = f"{value.resolve()}{size}"
        if name == "seed" and value == RANDOM_SEED:
            value = -1
        values[flag.name] = list(value) if isinstance(value, tuple) else value
    return values


def row_hash(settings: Mapping[str, Any], form: str, data: bytes) -> str:
    """16 hexadecimal digits for a row under settings."""
    whole = json.dumps([settings, form], sort_keys=True).encode() + b"\n" + data
    return hashlib.blake2b(whole, digest_size=8).hexdigest()


class Journal:
    """Records in FILE. Make it before anything is loaded: what stands in the way is said then.

    Raises UsageError when FILE is there and is not to be gone on with, or was made with other settings;
    FileError when it cannot be read or written, or is no file of answers.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool, retry_errors: bool) -> None:
        self.path, self._settings, self._real = path, settings, Path(os.path.realpath(path))
        self._meta = path.with_name(path.name + ".meta.json")
        self._file: BinaryIO | None = None
        self._end = 0  # of the last whole record
        self.answered: dict[int, str] = {}
        """Index -> hash of its row."""
        self.failed: set[int] = set()
        """Those of them whose record is an error."""
        there = os.path.exists(path)
        if there and not resume:
            raise self._exists()
        self._resume = resume
        if not there and self._meta.exists() and self._made() is None:
            raise UsageError(f"-o/--output: {self._meta} exists, and no run of batch made it")
        self._resumed = there and path.stat().st_size > 0
        if self._resumed:
            self._open("ab")
            self._same_settings()
            for _, end, record in self._records():
                self._end, index = end, record["index"]
                self.answered[index] = record["hash"]
                self.failed.discard(index)
                if "error" in record:
                    self.failed.add(index)
            if retry_errors:
                for index in self.failed:
                    del self.answered[index]
                self.failed.clear()

    def _exists(self) -> UsageError:
        return UsageError(f"-o/--output: {self.path} exists: --resume goes on with it")

    def _made(self) -> dict[str, Any] | None:
        """The settings that made FILE; None if the file beside it does not say."""
        try:
            return dict(json.loads(self._meta.read_bytes())["settings"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        except OSError as error:
            raise FileError(f"--resume: {self._meta} says how {self.path} was made: {error.strerror}") from None

    def _same_settings(self) -> None:
        made, now = self._made(), dict(self._settings)
        if made is None:
            raise FileError(f"--resume: {self._meta} does not say how {self.path} was made")
        differing = [name for name in {**made, **now} if made.get(name) != now.get(name)]
        if differing:
            changes = ", ".join(
                f"{name} was {_shown(made.get(name))}, now {_shown(now.get(name))}" for name in differing
            )
            raise UsageError(f"--resume: {self.path} was made with other settings: {changes}")

    def _records(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(start, end, record) of each whole line; a torn last one is left out."""
        end = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, end = end, end + len(line)
                if not line.endswith(b"\n"):
                    return
                try:
                    record = json.loads(line)
                    if type(record["index"]) is not int or record["index"] < 0 or type(record["hash"]) is not str:
                        raise ValueError
                except (ValueError, TypeError, KeyError, RecursionError):
                    if end == self.path.stat().st_size:
                        return
                    raise FileError(f"--resume: line {number} of {self.path} is no record of a row") from None
                yield start, end, record

    def _open(self, mode: str) -> BinaryIO:
        try:
            file = self._file = self.path.open(mode, buffering=0)  # type: ignore[assignment]
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileExistsError:
            raise self._exists() from None
        except BlockingIOError:
            raise FileError(f"-o/--output: another run is writing {self.path}") from None
        except OSError as error:
            raise FileError(f"-o/--output: {self.path}: {error.strerror}") from None
        assert self._file is not None
        return self._file

    def begin(self) -> None:
        """Make FILE ready for the first record: nobody else may have begun one meanwhile."""
        file = self._file or self._open("ab" if self._resume else "xb")
        if not self._resumed:
            if os.fstat(file.fileno()).st_size:
                raise FileError(f"-o/--output: another run has written {self.path} meanwhile")
            meta = json.dumps({"settings": self._settings}, ensure_ascii=False, indent=1)
            _replace(self._meta, [meta.encode() + b"\n"])
        try:
            file.truncate(self._end)
        except OSError as error:
            raise FileError(f"-o/--output: {self.path}: {error.strerror}") from None

    def write(self, text: str) -> None:
        """Append a record (a line with its line end)."""
        assert self._file is not None
        data = text.encode()
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            raise FileError(f"-o/--output: {self.path}: {error.strerror}") from None

    def finish(self, ordered: bool) -> None:
        """After the last row: each row once, its newest record, in the order of the input if that was asked for."""
        if not self._resumed:
            return
        places: dict[int, tuple[int, int]] = {}
        in_order, last = True, -1
        for start, end, record in self._records():
            index = record["index"]
            in_order = in_order and (index > last if ordered else index not in places)
            last = index
            places.pop(index, None)
            places[index] = (start, end)
        if in_order:
            return
        order = sorted(places) if ordered else list(places)
        with self.path.open("rb") as file:
            _replace(self._real, (_part(file, *places[index]) for index in order))

    def close(self) -> None:
        """Close FILE, once."""
        if self._file:
            self._file.close()


def _part(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _replace(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file as a whole or not at all, with the permissions of the old one. Raises FileError."""
    new = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
            new = file.name
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(new, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~mask)
        os.replace(new, path)
    except OSError as error:
        if new:
            with suppress(OSError):
                os.unlink(new)
        raise FileError(f"-o/--output: {path}: {error.strerror}") from None


def _shown(value: Any) -> str:
    return "not set" if value in (None, [], "") else str(value)
