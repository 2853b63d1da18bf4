"""llama.cpp's habits on the command line, made plain before Typer reads it.

`--a_b` for `--a-b`, `--flag value` and `--flag=value`, many-letter flags behind one dash, and
never a cluster of short ones. What other tools write otherwise is translated, and said.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence as Seq
from typing import NamedTuple

from spec_cli.cli.habits import MEANT, MET, NAMES
from spec_cli.cli.refused import REFUSED
from spec_cli.cli.speculative_config import SPECULATIVE_CONFIG, translated
from spec_cli.errors import UsageError, did_you_mean
from spec_cli.settings import flags, is_switch

# common/arg.cpp: these take a number and only say what to use instead; ngram-simple alone runs here.
REMOVED = {
    **dict.fromkeys(("--draft", "--draft-n", "--draft-max"), "--spec-draft-n-max"),
    **dict.fromkeys(("--draft-min", "--draft-n-min"), "--spec-draft-n-min"),
    "--spec-ngram-size-n": "--spec-ngram-simple-size-n",
    "--spec-ngram-size-m": "--spec-ngram-simple-size-m",
    "--spec-ngram-min-hits": "--spec-ngram-simple-min-hits",
}
HELP = ("-h", "--help")
HELP_ALL = "--help-all"
ALONE = ("--version", "--list-devices")
"""Flags that print something and end, whatever stands around them."""
NOTE = "--note"
"""How `plain` passes on a line for standard error; nobody can type it."""


class _Spelling(NamedTuple):
    """What a spelling of a flag means. field: of Settings; value: what it takes, "" for nothing."""

    name: str
    field: str = ""
    value: str = ""
    off: bool = False


def _spellings(command: str | None) -> dict[str, _Spelling]:
    """What each spelling means to a command; without one, to any."""
    known = dict.fromkeys((*HELP, HELP_ALL), _Spelling("--help"))
    for field, flag in flags(command).items():
        words = flag.choices or (tuple(flag.metavar.split("|")) if "|" in flag.metavar else ())
        value = "" if is_switch(field) else f"one of {', '.join(words)}" if words else flag.metavar
        known |= {name: _Spelling(flag.name, field, value) for name in flag.names}
        known |= {name: _Spelling(flag.name, field, off=True) for name in flag.off}
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


def _split(arg: str) -> tuple[str, str | None]:
    """The name of a flag, and the value that stands behind a `=`."""
    if not arg.startswith("--"):
        return arg, None
    name, equals, value = arg.partition("=")
    return name.replace("_", "-"), value if equals else None


def _is_flag(arg: str) -> bool:
    """Whether a word is a spelling of any flag, here or in llama.cpp, rather than a value."""
    name = _split(arg)[0]
    everywhere = (_spellings(None), MEANT, MET, REFUSED, REMOVED, ALONE)
    return arg.startswith("-") and " " not in arg and any(name in names for names in everywhere)


def plain(args: Seq[str], command: str = "generate") -> list[str]:
    """The arguments of a command with every flag as `--name=value`, `--name` or `--no-name`.

    A bare argument of `batch` is its -f. One of `ALONE` is all that remains.
    Raises UsageError for unknown and removed flags, missing and surplus values.
    """
    known, result, rest = _spellings(command), list[str](), list(args)
    named = False

    def value_of(name: str, given: str | None, expected: str) -> str:
        """The value of a flag: what stands behind its `=`, else the next word, which is no flag."""
        if given is not None:
            return given
        if rest and not _is_flag(rest[0]):
            return rest.pop(0)
        on = f" ({name} on turns it on)" if expected.startswith("one of on,") else ""
        if not rest:
            raise UsageError(f"{name}: expected {expected}{on}")
        if expected == "TEXT":
            on = f" ({known[name].name}={shlex.quote(rest[0])} passes it as it is)"
        raise UsageError(f"{name}: expected {expected}; {rest[0]} is a flag{on}")

    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or arg == "-":
            if command != "batch" or named:
                hint = "one file at a time" if named else "a prompt goes behind -p, a file behind -f"
                raise UsageError(f"unexpected argument: {arg} ({hint})")
            named = True
            result.append(f"--file={arg}")
            continue
        name, given = _split(arg)
        if name in ALONE:
            return [name]
        if name in REMOVED:
            raise UsageError(f"{name}: the argument has been removed. use {REMOVED[name]}")
        if name == SPECULATIVE_CONFIG:
            words = translated(value_of(name, given, "JSON"))
            result.append(f"{NOTE}={name}: {shlex.join(words)}")
            rest = [*words, *rest]
            continue
        if name in known:
            meant = known[name]
            if meant.value:
                result.append(f"{meant.name}={value_of(name, given, meant.value)}")
            elif given is not None:
                raise UsageError(f"{name}: takes no value, {given!r} was given")
            else:
                result.append(f"--no-{meant.name[2:]}" if meant.off else meant.name)
            continue
        pair = f"{name}={given if given is not None else rest[0] if rest else ''}"
        if pair in MET and given is None:
            rest.pop(0)
        met = MET.get(pair) or MET.get(name)
        if (met or name in MEANT) and pair not in MET and given is not None:
            raise UsageError(f"{name}: takes no value, {given!r} was given")
        if met:
            result.append(f"{NOTE}={pair if pair in MET else name}: met already: {met}")
        elif name in MEANT:
            result.append(f"{NOTE}={name}: taken as {shlex.join(MEANT[name])}")
            rest = [*MEANT[name], *rest]
        elif name in REFUSED:
            raise UsageError(f"{name}: llama.cpp has it, spec-cli has not: {REFUSED[name]}")
        else:
            owner = next((c for f in flags().values() if name in f.names for c in f.commands), None)
            near = did_you_mean(NAMES.get(name, name), [k for k in known if len(k) > 2])
            raise UsageError(f"unknown flag: {name}" + (f" (it is one of spec-cli {owner})" if owner else near))
    return result
