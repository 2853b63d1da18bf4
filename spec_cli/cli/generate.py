"""`spec-cli generate`: answer one prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spec_cli.cli.prompt import argument, user_text
from spec_cli.cli.signals import interruptible
from spec_cli.cli.terminal import Output, quiet, same_file, say
from spec_cli.config import resolve
from spec_cli.errors import Interrupted, PromptError, UsageError
from spec_cli.settings import Settings

if TYPE_CHECKING:
    from array import array

    from spec_cli.engine import Answer, Engine


def generate(given: dict[str, Any]) -> None:
    """Answer one prompt with a GGUF model, guessing ahead to be faster.

    The answer goes to standard output, everything else to standard error.
    """
    settings = resolve(given, os.environ)
    text = user_text(settings)
    settings = _checked(settings)
    tell = quiet if settings.quiet else say
    with ExitStack() as stack:
        output = stack.enter_context(Output(settings.output))
        from spec_cli.engine import Engine  # loads numpy and llama.cpp: only now
        from spec_cli.llama.abort import Abort

        abort = Abort()
        received = stack.enter_context(interruptible(abort.set))

        def emit(piece: str) -> None:
            received.patient = False
            output.write(piece)
            received.patient = True

        received.patient = True
        try:
            engine = stack.enter_context(Engine(settings, tell, abort))
        except Interrupted:
            raise received.error() from None
        received.patient = False
        tokens = _tokens(engine, settings, text)
        received.patient = True
        answer = engine.generate(tokens, emit=_ignore if settings.json else emit)
        received.patient = False
        if settings.json:
            output.write(json.dumps(_object(answer, engine), ensure_ascii=False) + "\n")
        else:
            output.end_line()
        _report(answer, engine, settings, tell)
    if answer.finish_reason == "interrupted":
        raise received.error()


def _ignore(text: str) -> None:
    """With --json the text waits for the object."""


def _checked(settings: Settings) -> Settings:
    """Everything about texts and files that needs no model."""
    stops = tuple(argument(stop, "--stop", settings.escape) for stop in settings.stop)
    if "" in stops:
        raise UsageError(f"{settings.origins.get('stop', '--stop')}: an empty text would end every answer at once")
    system = settings.system_prompt
    if system is not None:
        system = argument(system, "-sys/--system-prompt", escape=False)
        if settings.raw:
            where = settings.origins.get("system_prompt", "-sys/--system-prompt")
            raise UsageError(f"{where}: needs the chat template, and --raw leaves it out")
    if settings.output and os.path.isfile(settings.output):
        inputs = {"-m": settings.model, "-md": settings.model_draft, "-f": settings.file, "--config": settings.config}
        for name, other in {**inputs, "standard input": 0, "standard error": 2}.items():
            if other is not None and same_file(settings.output, other):
                raise UsageError(f"-o/--output: {settings.output} is the file of {name}")
    return replace(settings, stop=stops, system_prompt=system)


def _tokens(engine: Engine, settings: Settings, text: str) -> array[int]:
    from spec_cli.chat.prompt import chat_tokens, plain_tokens
    from spec_cli.chat.template import ChatTemplate

    vocab = engine.vocab
    n_bytes, n_ctx = len(text.encode()), engine.target.n_ctx
    if n_bytes > 16 * n_ctx and n_bytes > vocab.longest * n_ctx:  # tokenising it would take minutes
        raise PromptError(f"the prompt has {n_bytes} bytes, more than {n_ctx} tokens of context hold (-c/--ctx-size)")
    if settings.raw or not engine.chat_template:
        if settings.system_prompt is not None:
            raise UsageError(f"-sys/--system-prompt: {settings.model} has no chat template")
        return plain_tokens(vocab, text)
    template = ChatTemplate(engine.chat_template, vocab.text(vocab.bos), vocab.text(vocab.eos))
    messages = [{"role": "user", "content": text}]
    if settings.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": settings.system_prompt})
    return chat_tokens(vocab, template, messages, parse_special=settings.parse_special)


def _object(answer: Answer, engine: Engine) -> dict[str, object]:
    from spec_cli.stats import as_json

    return {
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "stop": answer.stop,
        "seed": answer.seed,
        "prompt_tokens": answer.n_prompt,
        **as_json(answer.stats, engine.choice.types or ("none",), engine.choice.n_max),
    }


def _report(answer: Answer, engine: Engine, settings: Settings, tell: Callable[[str], None]) -> None:
    """What happened, in llama.cpp's lines."""
    from spec_cli.stats import acceptance_line, position_line, statistics_lines, timing_lines

    stats, choice = answer.stats, engine.choice
    if answer.finish_reason == "context":
        tell(f"the context is full ({engine.target.n_ctx} tokens): the answer ends here (-c/--ctx-size)")
    if stats.total.drafted:
        tell(acceptance_line(stats.total))
        if settings.verbose:
            tell(position_line(stats.total))
    else:
        tell(f"speculation: {engine.why_nothing_drafted(stats)}")
    for line in timing_lines(stats):
        tell(line)
    if settings.verbose:
        for line in statistics_lines(stats, engine.drafter.calls):
            tell(line)
    if choice.types and stats.total.drafted > 200 and not stats.total.accepted:
        tell(f"speculation: none of {stats.total.drafted} guesses was right: this draft does not help this target")
    tell(f"seed = {answer.seed}")
