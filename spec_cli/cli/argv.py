"""llama.cpp's habits on the command line, made plain before Typer reads it.

`--a_b` for `--a-b`, `--flag value` and `--flag=value`, many-letter flags behind one dash, and
never a cluster of short ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence as Seq

from spec_cli.cli.refused import REFUSED
from spec_cli.errors import UsageError
from spec_cli.settings import flags, is_switch

# common/arg.cpp: these take a number and only say what to use instead.
REMOVED = {
    **dict.fromkeys(("--draft", "--draft-n", "--draft-max"), "--spec-draft-n-max or --spec-ngram-mod-n-max"),
    **dict.fromkeys(("--draft-min", "--draft-n-min"), "--spec-draft-n-min or --spec-ngram-mod-n-min"),
    "--spec-ngram-size-n": "the respective --spec-ngram-*-size-n",
    "--spec-ngram-size-m": "the respective --spec-ngram-*-size-m",
    "--spec-ngram-min-hits": "the respective --spec-ngram-*-min-hits",
}
HELP = ("-h", "--help")
HELP_ALL = "--help-all"


def _spellings(command: str) -> dict[str, tuple[str, bool, bool]]:
    """Spelling -> (canonical flag, whether it takes a value, whether it turns a switch off)."""
    known = dict.fromkeys((*HELP, HELP_ALL), ("--help", False, False))
    for field, flag in flags(command).items():
        for name in flag.names:
            known[name] = (flag.name, not is_switch(field), False)
        for name in flag.off:
            known[name] = (flag.name, False, True)
    return known


def without_token(args: Seq[str]) -> tuple[list[str], list[str]]:
    """The arguments that may be shown, and the secrets: what stands behind -hft in any spelling, also a wrong one."""
    names = flags()["hf_token"].names
    shown, secrets, rest = [], [], list(args)
    while rest:
        arg = rest.pop(0)
        name = arg.replace("_", "-") if arg.startswith("--") else arg
        if name in names:
            secrets += rest[:1]
            del rest[:1]
        elif found := next((n for n in names if name.startswith(n)), None):
            secrets.append(arg[len(found) :].removeprefix("="))
        else:
            shown.append(arg)
    return shown, secrets


def plain(args: Seq[str], command: str = "generate") -> list[str]:
    """The arguments of a command with every flag as `--name=value`, `--name` or `--no-name`.

    A bare argument of `batch` is its -f.
    Raises UsageError for unknown and removed flags, missing and surplus values.
    """
    known, result, rest = _spellings(command), [], list(args)
    named = False
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or arg == "-":
            if command != "batch" or named:
                hint = "one file at a time" if named else "a prompt goes behind -p, a file behind -f"
                raise UsageError(f"unexpected argument: {arg} ({hint})")
            named = True
            result.append(f"--file={arg}")
            continue
        name, has_value, value = arg, False, ""
        if arg.startswith("--"):
            name, equals, value = arg.partition("=")
            name, has_value = name.replace("_", "-"), bool(equals)
        if name in REMOVED:
            raise UsageError(f"{name}: the argument has been removed. use {REMOVED[name]}")
        if name in REFUSED and name not in known:
            raise UsageError(f"{name}: llama.cpp has it, spec-cli has not: {REFUSED[name]}")
        if name not in known:
            owner = next((c for f in flags().values() if name in f.names for c in f.commands), None)
            near = difflib.get_close_matches(name, [k for k in known if len(k) > 2], n=1)
            hint = f" (it is one of spec-cli {owner})" if owner else f" (did you mean {near[0]}?)" if near else ""
            raise UsageError(f"unknown flag: {name}{hint}")
        canonical, takes_value, off = known[name]
        if not takes_value:
            if has_value:
                raise UsageError(f"{name}: takes no value, {value!r} was given")
            result.append(f"--no-{canonical[2:]}" if off else canonical)
            continue
        if not has_value:
            if not rest:
                raise UsageError(f"{name}: expected value for argument")
            value = rest.pop(0)
        result.append(f"{canonical}={value}")
    return result
