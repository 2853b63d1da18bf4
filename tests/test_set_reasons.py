"""What /set refuses, it refuses for a true reason."""

from __future__ import annotations

import pytest

from spec_cli.cli.chat.options import ELSEWHERE, _field, _settable
from spec_cli.errors import UsageError
from spec_cli.settings import CONTEXT, MODEL, flags


def reason(name: str) -> str:
    with pytest.raises(UsageError) as error:
        _field(name)
    return str(error.value)


def test_only_models_and_contexts_need_a_new_context_or_file() -> None:
    refused = [name for name in flags() if name not in _settable()]
    assert len(refused) > 60
    for name in refused:
        key = flags()[name].name.lstrip("-")
        needs = reason(key).endswith(f"only at the start, it needs a new context or file ({flags()[name].name})")
        assert needs == (flags()[name].panel in (MODEL, CONTEXT) and name not in ELSEWHERE), name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("verbose", "only at the start (-v); /stats shows the numbers at any time"),
        ("v", "only at the start (-v); /stats shows the numbers at any time"),
        ("color", "/color turns them on or off"),
        ("prompt", "what you type is the prompt"),
        ("parallel", "it is one of spec-cli batch"),
        ("markdown", "only at the start (--markdown)"),
        ("spec-draft-p-min", "only at the start, what guesses is made with it (--spec-draft-p-min)"),
        ("grammar-file", "grammar takes the grammar itself"),
        ("ctx-size", "only at the start, it needs a new context or file (--ctx-size)"),
    ],
)
def test_the_reason_is_the_options_own(name: str, why: str) -> None:
    assert reason(name) == f"/set {name}: {why}"
