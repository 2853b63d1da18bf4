"""An answer as rendered Markdown, while it is made."""

from __future__ import annotations

import sys
from time import monotonic

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from spec_cli.cli.status import REFRESH, status
from spec_cli.cli.terminal import shown
from spec_cli.scheduler import Job

# nothing of an answer may vanish: what looks like HTML, definitions of links and pictures are text
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["reference", "image"])


class _Markdown(Markdown):
    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False, code_theme="ansi_dark")
        self.parsed = PARSER.parse(text)


class _Tail:
    """The last lines of something, as many as the screen has room for."""

    def __init__(self, body: RenderableType) -> None:
        self._body = body

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._body, options, pad=False)
        for line in lines[-max(1, options.size.height - 3) :]:
            yield from line
            yield Segment.line()


class MarkdownView:
    """Prints the blocks that no further text can change, and shows the last one below as it grows."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._text, self._shown = "", 0.0
        self._below = False  # whether a block of this answer stands above

    def write(self, text: str) -> None:
        """A piece of the answer."""
        self._text += shown(text)

    def watch(self, job: Job) -> None:
        """Show what there is, now and then."""
        now = monotonic()
        if now - self._shown < REFRESH:
            return
        self._shown = now
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._settle()
        line = Text(status(job, self._console.width), style="dim", no_wrap=True, overflow="crop")
        gap = [Text("")] if self._below else []
        self._live.update(Group(*gap, _Tail(_Markdown(self._text)), line), refresh=True)

    def end(self) -> None:
        """Print the rest."""
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()
            self._live = None
        if self._text.strip():
            self._print(self._text)
        self._text, self._below = "", False

    def _settle(self) -> None:
        """Print what stands before the last block."""
        blocks = [t.map[0] for t in PARSER.parse(self._text) if t.level == 0 and t.map and t.nesting >= 0]
        lines = self._text.split("\n")
        if len(blocks) > 1:
            self._print("\n".join(lines[: blocks[-1]]))
            self._text = "\n".join(lines[blocks[-1] :])

    def _print(self, text: str) -> None:
        if self._below:
            self._console.print()
        self._console.print(_Markdown(text))
        self._below = True
