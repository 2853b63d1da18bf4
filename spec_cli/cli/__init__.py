"""The command line: one file a command, and one place that turns errors into exit codes."""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Sequence as Seq
from typing import Annotated

import typer

from spec_cli.cli.about import device_lines, version_lines
from spec_cli.cli.argv import ALONE, HELP, HELP_ALL, plain, without_token
from spec_cli.cli.batch import batch
from spec_cli.cli.chat.command import chat
from spec_cli.cli.docs import docs
from spec_cli.cli.generate import generate
from spec_cli.cli.habits import COMMANDS as ELSEWHERE
from spec_cli.cli.models import app as models
from spec_cli.cli.options import PanelCommand, with_options
from spec_cli.cli.terminal import Output, abandon_stdout, say
from spec_cli.errors import FileError, Interrupted, SpecError, UsageError, did_you_mean, in_words
from spec_cli.hub.token import masked

app = typer.Typer(
    name="spec-cli",
    help="Speculative decoding on GGUF models: same answers, fewer slow passes.",
    no_args_is_help=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": list(HELP)},
)
COMMANDS = (generate, chat, batch)
app.add_typer(models, name="models")
app.command()(docs)
NAMES = tuple(command.__name__ for command in COMMANDS)
for command in COMMANDS:
    usage = "[OPTIONS] [FILE]" if command is batch else "[OPTIONS]"
    app.command(cls=PanelCommand, options_metavar=usage)(with_options(command))


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the versions of all parts and exit.")] = False,
    list_devices: Annotated[bool, typer.Option("--list-devices", help="Show what -dev may name and exit.")] = False,
) -> None:
    """Speculative decoding on GGUF models: same answers, fewer slow passes."""
    if version or list_devices:
        with Output(None) as output:
            output.write("".join(f"{line}\n" for line in (version_lines() if version else device_lines())))
        raise typer.Exit


def _arguments(args: Seq[str]) -> list[str]:
    """What Typer gets to see. Raises UsageError for what would confuse it."""
    if not args:
        return ["--help"]
    first, *rest = args
    if first in NAMES:
        PanelCommand.everything = HELP_ALL in rest
        words = plain(rest, first)
        return words if words and words[0] in ALONE else [first, *words]
    if first == "docs":
        return list(args)
    if first == "models":
        return list(args) if rest else ["models", "--help"]
    if first in (*ALONE, *HELP) or first.startswith(("--install-completion", "--show-completion")):
        return list(args)
    if first.startswith("-"):
        words = plain(args)  # a mistake in the flags is the more useful answer
        if words[0] in ALONE:
            return words
        raise UsageError(f"no command given: try spec-cli generate {shlex.join(without_token(args)[0])}")
    commands = (*NAMES, "models", "docs")
    hint = f" ({ELSEWHERE[first]})" if first in ELSEWHERE else did_you_mean(first, commands)
    raise UsageError(f"unknown command: {first}" + (hint or f" (commands: {', '.join(commands)})"))


def run(args: Seq[str]) -> int:
    """Run one command line; return its exit code."""
    debug = "--debug" in args
    secrets = [*without_token(args)[1], os.environ.get("HF_TOKEN", "")]

    def tell(text: str) -> None:
        say(masked(text, secrets))

    try:
        code = app(_arguments(args), standalone_mode=False, prog_name="spec-cli")
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, SystemExit):  # Typer turns a closed pipe, and nothing else, into an exit
        abandon_stdout()
        return 0
    except KeyboardInterrupt as error:
        return error.args[0] if error.args else Interrupted.exit_code
    except SpecError as error:
        if debug:
            tell(traceback.format_exc().rstrip())
        tell(f"error: {in_words(error)}" if not isinstance(error, Interrupted) else "interrupted")
        return error.exit_code
    except typer.TyperException as error:
        tell(f"error: {' '.join(error.format_message().split())}")
        return UsageError.exit_code
    except OSError as error:
        abandon_stdout()
        tell(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        return FileError.exit_code
    except Exception as error:
        if debug:
            tell(traceback.format_exc().rstrip())
        tell(f"error: {in_words(error)}")
        return SpecError.exit_code
