"""`spec-cli chat`: a conversation."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from spec_cli.cli.checked import checked
from spec_cli.cli.prompt import user_text
from spec_cli.cli.signals import interruptible
from spec_cli.cli.terminal import LEGEND, quiet, require_new, say_wrapped, wants_color
from spec_cli.config import resolve
from spec_cli.errors import Interrupted, UsageError
from spec_cli.hub import fetched


def chat(given: dict[str, Any]) -> int:
    """Talk with a GGUF model, guessing ahead to be faster; /help lists the commands.

    Without a terminal each line of standard input is a turn. Only answers go to standard output. The
    exit code is then that of the first line that was refused.
    """
    settings = resolve(given, os.environ)
    if settings.raw:
        raise UsageError(f"{settings.origins['raw']}: a conversation needs the chat template")
    settings = checked(settings)
    if settings.output:
        require_new(settings.output, "-o/--output")
    tell = quiet if settings.quiet else say_wrapped
    for note in settings.notes:
        tell(note)
    first = None
    if settings.prompt is not None or settings.file:
        first = user_text(settings, tell, joins=False)
    settings = fetched(settings, tell)
    color = wants_color(settings.color)
    if color and settings.markdown:
        raise UsageError("--color and --markdown exclude each other")
    with ExitStack() as stack:
        from spec_cli.chat.talk import Talk  # these load numpy, llama.cpp and prompt_toolkit: only now
        from spec_cli.cli.chat import slash
        from spec_cli.cli.chat.keyboard import keyboard
        from spec_cli.cli.chat.screen import Screen
        from spec_cli.cli.chat.shell import Shell
        from spec_cli.cli.status import loading
        from spec_cli.engine import Engine
        from spec_cli.llama.abort import Abort

        screen = Screen(settings, color)
        abort = Abort()
        with interruptible(abort.set) as received:
            received.patient = True
            try:
                with loading(tell, not (settings.quiet or settings.verbose)) as told:
                    engine = stack.enter_context(Engine(settings, told, abort, free=True))
            except Interrupted:
                raise received.error() from None
        talk = Talk(engine, replace(engine.settings, logprobs=None))
        shell = Shell(talk, keyboard(settings, slash.words, tell), screen, tell)
        if color:
            tell(LEGEND)
        if settings.markdown and not screen.renders:
            tell("--markdown: standard output is no terminal that can show it: answers are printed as they are")
        if not shell.keyboard.piped:
            tell(shell.model)
            tell("/help lists the commands, Ctrl-D leaves")
        shell.run(first)
        return shell.exit_code
