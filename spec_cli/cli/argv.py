"""llama.cpp's habits on the command line, made plain before Typer reads it.

`--a_b` for `--a-b`, `--flag value` and `--flag=value`, many-letter flags behind one dash, and
never a cluster of short ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence as Seq

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


def _spellings() -> dict[str, tuple[str, bool, bool]]:
    """Spelling -> (canonical flag, whether it takes a value, whether it turns a switch off)."""
    known = dict.fromkeys(HELP, ("--help", False, False))
    for field, flag in flags().items():
        for name in flag.names:
            known[name] = (flag.name, not is_switch(field), False)
        for name in flag.off:
            known[name] = (flag.name, False, True)
    return known


def plain(args: Seq[str]) -> list[str]:
    """The arguments of a command with every flag as `--name=value`, `--name` or `--no-name`.

    Raises UsageError for unknown and removed flags, missing and surplus values.
    """
    known, result, rest = _spellings(), [], list(args)
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or arg == "-":
            raise UsageError(f"unexpected argument: {arg} (a prompt goes behind -p, a file behind -f)")
        name, has_value, value = arg, False, ""
        if arg.startswith("--"):
            name, equals, value = arg.partition("=")
            name, has_value = name.replace("_", "-"), bool(equals)
        if name in REMOVED:
            raise UsageError(f"{name}: the argument has been removed. use {REMOVED[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, [k for k in known if len(k) > 2], n=1)
            raise UsageError(f"unknown flag: {name}" + (f" (did you mean {near[0]}?)" if near else ""))
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
