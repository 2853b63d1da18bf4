"""The conversation as a person or a script has it: turns in, answers out, commands between."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spec_cli.chat.talk import Listener, Reply, Talk
from spec_cli.cli.chat import slash
from spec_cli.cli.chat.keyboard import Keyboard, is_command
from spec_cli.cli.chat.screen import Screen
from spec_cli.cli.chat.transcript import Transcript
from spec_cli.cli.keys import silent
from spec_cli.cli.signals import interruptible
from spec_cli.cli.terminal import LEGEND, counted, is_terminal, on_one_screen, say_wrapped, width
from spec_cli.errors import Interrupted, PromptError, SpecError, UsageError
from spec_cli.report import cut_line, position_line, statistics_lines, timing_lines, turn_line, useless_line

LEAVE = ("exit", "quit")  # alone on a line, as to Python's prompt; in a pipe they are words like others
MOST_ECHO = 500  # characters of -p that are shown, as in llama-cli


class Shell:
    """One conversation from its first turn to its last.

    tell: for what a person should know, unless `-q`; show: for what was asked for.
    """

    show = staticmethod(say_wrapped)

    def __init__(self, talk: Talk, keyboard: Keyboard, screen: Screen, tell: Callable[[str], None]) -> None:
        self.talk, self.keyboard, self.screen, self.tell = talk, keyboard, screen, tell
        self.transcript = Transcript(talk.settings.output)
        self.pending = ""
        """Texts of files that go before the next message."""
        self.offered: str | None = None
        """The message that comes back for editing."""
        self.own_files: set[Path] = set()
        """Files that this conversation was saved to or loaded from."""
        self.done = False
        self.exit_code = 0
        """Of the first thing that was refused, where no person saw that."""
        self._stops = False
        self._told_useless = False

    def run(self, first: str | None) -> None:
        """Turn after turn until the end of the input, `/exit`, or with `-st` one answer.

        At a terminal Ctrl-C is a key while a line is typed, stops an answer or a command, and has no
        effect between.
        """
        if self.keyboard.piped:
            self._turns(first)
            return
        old = signal.signal(signal.SIGINT, self._ctrl_c)
        try:
            self._turns(first)
        finally:
            signal.signal(signal.SIGINT, old)

    def _ctrl_c(self, number: int, frame: object) -> None:
        if self._stops:
            self._stops = False
            raise KeyboardInterrupt

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """A command: Ctrl-C ends it and nothing else."""
        self._stops = True
        try:
            yield
        finally:
            self._stops = False

    def _turns(self, first: str | None) -> None:
        warned = False
        while not self.done:
            edited, self.offered = self.offered is not None, self.offered or ""
            try:
                if first is not None:
                    text, first = first, None
                    self._echo(text)
                else:
                    text = self._read()
            except EOFError:
                break
            except KeyboardInterrupt:
                if edited:
                    self.tell("the last message stays as it was")
                    continue
                if warned:
                    break
                warned = True
                self.tell("(Ctrl-C again leaves, and so does Ctrl-D)")
                continue
            except UsageError as error:
                self._refused(error)
                continue
            finally:
                self.offered = None
            warned = False
            try:
                self._take(text, edited)
            except (UsageError, PromptError) as error:
                if self.talk.settings.single_turn:
                    raise
                self._refused(error)
            except (Interrupted, KeyboardInterrupt) as error:
                if not self._goes_on(error):
                    raise
        if self.pending:
            self.tell("no message followed: what was read from files is not sent")
        if self.transcript.error:
            raise self.transcript.error

    def _read(self) -> str:
        if not self.keyboard.piped:
            self.tell("")
            return self.keyboard.read(self.offered or "")
        with interruptible(lambda: None):  # a signal ends the wait
            return self.keyboard.read()

    def _echo(self, text: str) -> None:
        """The first turn of -p, as if it had been typed."""
        if not self.keyboard.piped:
            self.tell(f"\n> {text if len(text) <= MOST_ECHO else f'{text[:MOST_ECHO]} ... (truncated)'}")

    def _take(self, text: str, edited: bool) -> None:
        if is_command(text) and not (edited and text == self.talk.conversation.question):
            with self._stoppable():
                slash.run(self, text)
        elif edited:
            self.ask_instead(text)
        elif text.strip() in LEAVE and not self.keyboard.piped:
            self.done = True
        elif text.strip():
            self.ask(text)

    def _goes_on(self, error: Interrupted | KeyboardInterrupt) -> bool:
        """Whether a signal ended one thing only: Ctrl-C at a terminal, once."""
        once = not error.args if isinstance(error, KeyboardInterrupt) else error.exit_code == Interrupted.exit_code
        return once and not (self.keyboard.piped or self.talk.settings.single_turn)

    def _refused(self, error: SpecError) -> None:
        if self.keyboard.piped and not self.exit_code:
            self.exit_code = error.exit_code
        way = ""
        if isinstance(error, PromptError):
            way = ": /clear starts anew, /undo takes back a turn"
            way += "" if self.talk.settings.context_shift else ", --context-shift drops the oldest ones"
        say_wrapped(f"error: {error}{way}")

    def ask(self, text: str) -> None:
        """A message, behind the files that were read for it."""
        whole = self.pending + text
        reply = self.answer(lambda listener: self.talk.ask(whole, listener), whole)
        self.pending = "" if reply.kept else self.pending

    def ask_instead(self, text: str) -> None:
        """A message in the place of the last one."""
        if text.strip():
            self.answer(lambda listener: self.talk.ask(text, listener, instead=True), text)
        else:
            self.tell("the last message stays as it was")

    def answer(self, how: Callable[[Listener], Reply], question: str | None = None) -> Reply:
        """Let the model answer, and tell how that went. question: for the transcript, where it is new."""
        abort, self._stops = self.talk.engine.abort, False
        abort.clear()
        with interruptible(abort.set) as received, silent():
            received.patient = True
            self.screen.begin(received)
            cut = False
            try:
                reply = how(self.screen)
                cut = reply.answer.finish_reason != "stop"
            finally:
                self.screen.end(cut=cut)
        self.transcript.add(reply, question)
        error = received.error()
        ends = received.signal is not None and not self._goes_on(error)
        self._report(reply, ends)
        if ends:
            raise error
        self.done = self.done or self.talk.settings.single_turn
        return reply

    def _report(self, reply: Reply, ends: bool) -> None:
        """What happened, in one line, and what a person should know besides. ends: a signal ends all."""
        answer, engine, settings = reply.answer, self.talk.engine, self.talk.settings
        if not reply.kept:
            self.tell("interrupted before the first word: nothing is kept of this turn")
            return
        if on_one_screen():
            self.tell("")
        if reply.dropped:
            self.tell(f"context shift: the oldest {counted(reply.dropped, 'turn')} dropped")
        if not ends and (cut := self._cut(reply)):
            self.tell(cut)
        if not answer.stats.predicted_n:
            return
        if settings.show_timings:
            why = "" if answer.stats.total.drafted else engine.why_nothing_drafted(answer)
            line = turn_line(answer.stats, why)
            narrow = is_terminal(sys.stderr) and len(line) >= width()
            self.tell(line.replace(" ] ", " ]\n") if narrow else line)
        if settings.verbose:
            self._details(reply)
        if not self._told_useless and (useless := useless_line(self.talk.stats.total)):
            self._told_useless = True
            self.tell(useless)
        engine.say_if_busy()

    def _cut(self, reply: Reply) -> str | None:
        """Why the answer stops where it does, if the model did not end it. A script that set -n knows."""
        answer, n_ctx = reply.answer, self.talk.engine.target.n_ctx
        if reply.thought and not reply.text and answer.finish_reason == "length":
            return f"the answer ends amid its thinking, after {answer.stats.predicted_n} tokens (-n/--predict)"
        if answer.finish_reason == "context":
            used = f"{answer.n_prompt} tokens of conversation and {n_ctx - answer.n_prompt} of answer"
            ways = "the next turn drops the oldest" if self.talk.settings.context_shift else "/clear starts anew"
            return f"the context is full ({used}, {n_ctx} in all): the answer ends here; {ways}"
        return None if self.keyboard.piped else cut_line(answer.finish_reason, answer.stats.predicted_n, n_ctx)

    def _details(self, reply: Reply) -> None:
        stats = reply.answer.stats
        lines = timing_lines(stats) + ([position_line(stats.total)] if stats.total.drafted else [])
        for line in [*lines, *statistics_lines(self.talk.stats.by_drafter, self.talk.engine.drafter.calls)]:
            self.tell(line)
        self.tell(f"seed = {reply.answer.seed}")

    @property
    def model(self) -> str:
        """What answers, in a few words."""
        return f"{self.talk.engine.name}, {self.talk.engine.target.n_ctx} tokens of context"

    def color(self, on: bool) -> None:
        """Colour the next answers, or not."""
        if on and self.screen.renders:
            raise UsageError("/color: --markdown renders the answer, its tokens have no colours then")
        self.screen.color = on
        self.tell(LEGEND if on else "colours: off")
