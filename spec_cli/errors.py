"""What can go wrong, for a human: one line of text and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecError(Exception):
    """Anything that ends a run. Its text is shown as one line; `exit_code` goes to the shell."""

    exit_code = 5


def in_words(error: Exception) -> str:
    """An error as one line: its own words, or the type too where nobody foresaw it."""
    if isinstance(error, SpecError):
        return " ".join(str(error).splitlines())
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this should not happen: {words} (--debug shows where)"


class UsageError(SpecError):
    """A flag, an environment variable or a configuration key that cannot be used."""

    exit_code = 2


class FileError(SpecError):
    """A file, a model or a vocabulary that cannot be used."""

    exit_code = 3


class PromptError(SpecError):
    """The prompt does not fit the context."""

    exit_code = 4


class BackendError(SpecError):
    """llama.cpp failed although everything was checked."""

    exit_code = 5


class Interrupted(SpecError):
    """The run was stopped from outside: Ctrl-C (130) or SIGTERM (143)."""

    exit_code = 130


def did_you_mean(word: str, known: Iterable[str], quote: str = "") -> str:
    """` (did you mean X?)` where one of the words is close, else nothing. The case of letters is no distance."""
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.75)
    return f" (did you mean {quote}{lower[near[0]]}{quote}?)" if near else ""
