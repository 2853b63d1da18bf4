"""A person at a terminal: the tool in a pseudo-terminal, its screen, and a wait for what it shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep

import pexpect
import psutil
import pyte
from cases import environment


class _Screen(pyte.HistoryScreen):  # type: ignore[misc]
    """Answers what the program asks its terminal, such as where the cursor is."""

    answer: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """`spec-cli chat`, or another command, on a terminal of its own. Use with `with`: the end kills what still runs."""

    def __init__(
        self, model: object, *args: object, home: Path, columns: int = 80, lines: int = 24,
        env: Mapping[str, str] | None = None, command: str = "chat",
    ) -> None:  # fmt: skip
        clean = environment({"TERM": "xterm-256color", "XDG_STATE_HOME": str(home), **(env or {})})
        clean.pop("NO_COLOR", None) if "NO_COLOR" not in (env or {}) else None
        for size in ("COLUMNS", "LINES"):  # the terminal says its own
            clean.pop(size, None) if size not in (env or {}) else None
        words = ["-m", "spec_cli", command, "-m", str(model), "-t", "1", *map(str, args)]
        self._screen = _Screen(columns, lines, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self.child = pexpect.spawn(sys.executable, words, env=clean, dimensions=(lines, columns), timeout=60)
        self.child.delaybeforesend = None
        self._screen.answer = self.child.send
        self.raw = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    @property
    def lines(self) -> list[str]:
        """What the terminal showed so far, history included, without blank ends."""
        old = ["".join(row[x].data for x in range(self._screen.columns)).rstrip() for row in self._screen.history.top]
        return old + [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines).rstrip()

    @property
    def at_prompt(self) -> bool:
        """Whether an empty input line waits."""
        return self._screen.display[min(self._screen.cursor.y, self._screen.lines - 1)].rstrip() == ">"

    @property
    def place(self) -> int:
        """The line of the cursor, counted from the first ever."""
        return len(self._screen.history.top) + self._screen.cursor.y

    @property
    def scrolls_whole(self) -> bool:
        """Whether all of the screen scrolls."""
        return self._screen.margins in (None, (0, self._screen.lines - 1))

    def wait(self, shown: Callable[[], bool] | str, seconds: float = 60) -> None:
        """Read until the screen shows it."""
        until = shown if callable(shown) else lambda: shown in self.text
        end = monotonic() + seconds
        while not until():
            assert monotonic() < end, f"waited in vain; the screen:\n{self.text}"
            try:
                data = self.child.read_nonblocking(65536, timeout=1)
            except pexpect.TIMEOUT:
                continue
            self.raw += data
            self._stream.feed(data)

    def start(self) -> Terminal:
        """Wait for the first input line."""
        self.wait(lambda: self.at_prompt)
        return self

    def wait_for_more(self) -> None:
        """Wait until the cursor is further down."""
        before = self.place
        self.wait(lambda: self.place > before)

    def wait_blocked(self) -> None:
        """Read nothing until the program waits for that."""
        process, still = psutil.Process(self.child.pid), 0.0
        end = monotonic() + 60
        while still != (still := sum(process.cpu_times()[:2])) or process.status() == "running":
            assert monotonic() < end, "it does not wait"
            sleep(0.5)

    def type(self, keys: str) -> None:
        """Press keys."""
        self.child.send(keys)

    def enter(self, line: str, end: str = "\r") -> str:
        """Type a line as soon as one is wanted; what the terminal showed until the next one is."""
        self.wait(lambda: self.at_prompt)
        before = self.place
        self.type(line + end)
        self.wait(lambda: self.at_prompt and self.place > before)
        return "\n".join(self.lines[before + 1 : self.place]).strip()

    def resize(self, columns: int, lines: int) -> None:
        """Change the size while the program runs."""
        self._screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def leave(self) -> int:
        """Press Ctrl-D; the exit code."""
        self.type("\x04")
        return self.ended()

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        try:
            while True:
                data = self.child.read_nonblocking(65536, timeout=30)
                self.raw += data
                self._stream.feed(data)
        except pexpect.EOF:
            pass
        self.child.wait()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)
