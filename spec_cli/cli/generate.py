"""`spec-cli generate`: answer one prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from spec_cli.cli.checked import checked
from spec_cli.cli.keys import silent
from spec_cli.cli.prompt import user_text
from spec_cli.cli.signals import interruptible
from spec_cli.cli.terminal import LEGEND, Output, on_one_screen, quiet, say, say_wrapped, wants_color
from spec_cli.config import resolve
from spec_cli.errors import Interrupted, UsageError
from spec_cli.hub import fetched
from spec_cli.settings import Settings

if TYPE_CHECKING:
    from spec_cli.answer import Answer
    from spec_cli.engine import Engine


def generate(given: dict[str, Any]) -> int:
    """Answer one prompt with a GGUF model, guessing ahead to be faster.

    The answer goes to standard output, everything else to standard error.
    """
    settings = checked(resolve(given, os.environ))
    if settings.logprobs is not None and not settings.json:
        raise UsageError(f"{settings.origins.get('logprobs', '--logprobs')}: needs --json to be printed in")
    tell = quiet if settings.quiet else say_wrapped
    for note in settings.notes:
        tell(note)
    text = user_text(settings, tell)
    settings = fetched(settings, tell)
    with ExitStack() as stack:
        output = stack.enter_context(Output(settings.output, wraps=not settings.json))
        from spec_cli.chat.prompt import Prompts  # these load numpy and llama.cpp: only now
        from spec_cli.cli.page import Page
        from spec_cli.cli.status import loading
        from spec_cli.engine import Engine
        from spec_cli.llama.abort import Abort

        abort = Abort()
        received = stack.enter_context(interruptible(abort.set))
        received.patient = True
        try:
            with loading(tell, not (settings.quiet or settings.verbose)) as told:
                engine = stack.enter_context(Engine(settings, told, abort))
        except Interrupted:
            raise received.error() from None
        received.patient = False
        prompts = Prompts(engine.vocab, engine.chat_template, engine.target.n_ctx, settings.model, engine.say)
        tokens = prompts.tokens(text, settings)
        color = not settings.json and settings.output is None and wants_color(settings.color)
        if color:
            tell(LEGEND)
        page = Page(output, received, color=color, quiet=settings.quiet, shows_text=not settings.json)
        stack.callback(page.close)
        with silent(stops=False) if on_one_screen() else nullcontext():
            received.patient = True
            answer = engine.generate(tokens, emit=page.write, mark=page.mark, watch=page.watch)
            received.patient = False
            page.end(
                lambda: json.dumps(answer.as_json(), ensure_ascii=False) + "\n", cut=answer.finish_reason != "stop"
            )
        if answer.text and output.on_screen and on_one_screen():
            tell("")
        if answer.finish_reason == "interrupted":
            say("interrupted")
        _report(answer, engine, settings, tell)
    return received.exit_code if answer.finish_reason == "interrupted" else 0


def _report(answer: Answer, engine: Engine, settings: Settings, tell: Callable[[str], None]) -> None:
    """What happened, in llama.cpp's lines."""
    from spec_cli.report import (
        acceptance_line,
        cut_line,
        position_line,
        statistics_lines,
        timing_lines,
        useless_line,
    )  # fmt: skip

    stats = answer.stats
    cut = cut_line(answer.finish_reason, stats.predicted_n, engine.target.n_ctx)
    if cut and answer.finish_reason != "interrupted":
        tell(cut)
    if not stats.prompt_n:
        return
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
