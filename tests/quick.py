"""Which tests are quick: those that start no process (so no terminal), read no real model and are not marked long."""

from __future__ import annotations

import dis
import inspect
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

STARTERS = ("subprocess", "multiprocessing", "pexpect")
EXAMPLES = 10  # of each property, where only quick tests run
_harmless: set[int] = set()


def is_quick(item: pytest.Item) -> bool:
    """Told by the names that the test reads, and its fixtures, and the helpers and fixtures that these use."""
    if not isinstance(item, pytest.Function) or "real" in item.fixturenames or item.get_closest_marker("long"):
        return False
    fixtures = [one.func for found in item._fixtureinfo.name2fixturedefs.values() for one in found]
    return not any(map(starts_a_process, (item.function, *fixtures)))


def with_few_examples(item: pytest.Item) -> None:
    """Try a property on a few examples only."""
    function = getattr(item, "function", None)
    if asked := getattr(function, "_hypothesis_internal_use_settings", None):
        few = hypothesis.settings(asked, max_examples=min(EXAMPLES, asked.max_examples))
        function._hypothesis_internal_use_settings = few  # type: ignore[union-attr]


@cache
def starts_a_process(value: Any) -> bool:
    """Whether a function, class or module of the tests leads to one that starts processes."""
    seen: set[int] = set()
    if found := _leads_to_one(value, seen):
        return found
    _harmless.update(seen)
    return False


def _leads_to_one(value: Any, seen: set[int]) -> bool:
    value = getattr(getattr(value, "hypothesis", value), "inner_test", value)
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    module = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
    if module.split(".")[0] in STARTERS:
        return True
    if id(value) in seen | _harmless or not _is_ours(module):
        return False
    seen.add(id(value))
    if isinstance(value, FunctionType):
        parts = [value.__globals__.get(name, sys.modules.get(name)) for name in _read(value.__code__)]
    else:
        parts = list(vars(value).values()) if isinstance(value, type | ModuleType) else []
    return any(_leads_to_one(part, seen) for part in parts)


@cache
def _is_ours(module: str) -> bool:
    return Path(__file__).with_name(f"{module}.py").is_file()


@cache
def _read(code: CodeType) -> frozenset[str]:
    """What this code reads of its module, or imports, inner functions included."""
    steps = list(dis.get_instructions(code))
    names = {str(step.argval) for step in steps if step.opname in ("LOAD_GLOBAL", "IMPORT_NAME")}
    return frozenset(names).union(*(_read(step.argval) for step in steps if isinstance(step.argval, CodeType)))
