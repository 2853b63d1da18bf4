"""`spec-cli generate`: answer one prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from spec_cli.cli.checked import checked
from spec_cli.cli.prompt import user_text
from spec_cli.cli.signals import interruptible
from spec_cli.cli.terminal import LEGEND, STYLES, Output, quiet, say, wants_color
from spec_cli.config import resolve
from spec_cli.errors import Interrupted, UsageError
from spec_cli.hub import fetched
from spec_cli.settings import Settings

if TYPE_CHECKING:
    from spec_cli.answer import Answer
    from spec_cli.engine import Engine
    from spec_cli.tokens import Kind


def generate(given: dict[str, Any]) -> None:
    """Answer one prompt with a GGUF model, guessing ahead to be faster.

    The answer goes to standard output, everything else to standard error.
    """
    settings = checked(resolve(given, os.environ))
    if settings.logprobs is not None and not settings.json:
        raise UsageError(f"{settings.origins.get('logprobs', '--logprobs')}: needs --json to be printed in")
    tell = quiet if settings.quiet else say
    for note in settings.notes:
        tell(note)
    text = user_text(settings, tell)
    settings = fetched(settings, tell)
    with ExitStack() as stack:
        output = stack.enter_context(Output(settings.output))
        from spec_cli.chat.prompt import Prompts  # these load numpy and llama.cpp: only now
        from spec_cli.engine import Engine
        from spec_cli.llama.abort import Abort

        abort = Abort()
        received = stack.enter_context(interruptible(abort.set))

        color = not settings.json and settings.output is None and wants_color(settings.color)
        style = ""

        def mark(kind: Kind) -> None:
            nonlocal style
            style = STYLES[kind] if color else ""

        def emit(piece: str) -> None:
            with received.writing(output.waits):
                output.write(piece, style)

        received.patient = True
        try:
            engine = stack.enter_context(Engine(settings, tell, abort))
        except Interrupted:
            raise received.error() from None
        received.patient = False
        prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, settings.model, engine.say)
        tokens = prompts.tokens(text, settings)
        if color:
            tell(LEGEND)
        received.patient = True
        answer = engine.generate(tokens, emit=_ignore if settings.json else emit, mark=mark)
        received.patient = False
        if settings.json:
            output.write(json.dumps(answer.as_json(), ensure_ascii=False) + "\n")
        else:
            output.end_line()
        _report(answer, engine, settings, tell)
    if answer.finish_reason == "interrupted":
        raise received.error()


def _ignore(text: str) -> None:
    """With --json the text waits for the object."""


def _report(answer: Answer, engine: Engine, settings: Settings, tell: Callable[[str], None]) -> None:
    """What happened, in llama.cpp's lines."""
    from spec_cli.report import (
        acceptance_line,
        position_line,
        statistics_lines,
        timing_lines,
        useless_line,
    )  # fmt: skip

    stats = answer.stats
    if answer.finish_reason == "context":
        tell(f"the context is full ({engine.target.n_ctx} tokens): the answer ends here (-c/--ctx-size)")
    if stats.total.drafted:
        tell(acceptance_line(stats.total))
        if settings.verbose:
            tell(position_line(stats.total))
    else:
        tell(f"speculation: {engine.why_nothing_drafted(answer)}")
    for line in timing_lines(stats):
        tell(line)
    if settings.verbose:
        for line in statistics_lines(stats.by_drafter, engine.drafter.calls):
            tell(line)
    if useless := useless_line(stats.total):
        tell(useless)
    engine.say_if_busy()
    tell(f"seed = {answer.seed}")
