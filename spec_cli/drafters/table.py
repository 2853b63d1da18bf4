"""Which ways of guessing there are, and which one a run uses."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from spec_cli.contracts import Drafter
from spec_cli.drafters.draft_simple import DraftModel, DraftSimple
from spec_cli.drafters.ngram_simple import NgramSimple
from spec_cli.errors import UsageError
from spec_cli.settings import Settings

# llama.cpp's names in its order of priority (common/speculative.cpp); the user's order does not matter.
KNOWN = (
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
    "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
)  # fmt: skip
SHORT = {"draft": "draft-simple", "simple": "draft-simple", "ngram": "ngram-simple", "lookup": "ngram-simple"}
SHORT |= {name.removeprefix("draft-"): name for name in KNOWN if name.startswith("draft-") and name != "draft-simple"}
HEADS = {"eagle3": "draft-eagle3", "dflash": "draft-dflash"}  # general.architecture of files that only guess
AUTOMATIC_N_MAX = 8  # a rejected 48-token draft costs ten passes and more on a CPU
DEFAULT_N_MAX = 3


@dataclass(frozen=True)
class Parts:
    """What a drafter may be made of."""

    draft: DraftModel | None
    target_vocab: int
    say: Callable[[str], None]


@dataclass(frozen=True)
class Kind:
    """A way of guessing that can be run: its longest draft, how it is made, what it needs."""

    longest: Callable[[Settings], int]
    make: Callable[[Settings, Parts], Drafter]
    needs_model: bool = False


def _draft_n_max(s: Settings) -> int:
    return DEFAULT_N_MAX if s.spec_draft_n_max is None else s.spec_draft_n_max


def _draft_simple(s: Settings, parts: Parts) -> Drafter:
    assert parts.draft is not None
    limits = {"n_max": _draft_n_max(s), "n_min": s.spec_draft_n_min}
    return DraftSimple(parts.draft, parts.target_vocab, **limits, p_min=s.spec_draft_p_min, say=parts.say)


BUILT = {
    "ngram-simple": Kind(
        lambda s: s.spec_ngram_simple_size_m,
        lambda s, parts: NgramSimple(s.spec_ngram_simple_size_n, s.spec_ngram_simple_size_m),
    ),
    "draft-simple": Kind(_draft_n_max, _draft_simple, needs_model=True),
}


@dataclass(frozen=True)
class Choice:
    """The types of a run in priority order, why, and the cap on every draft (None: each type's own)."""

    types: tuple[str, ...]
    why: str
    n_max: int | None

    @property
    def needs_model(self) -> bool:
        """Whether a draft model is loaded."""
        return any(BUILT[t].needs_model for t in self.types)

    def longest(self, settings: Settings) -> int:
        """The longest draft that the types can make."""
        longest = max((BUILT[t].longest(settings) for t in self.types), default=0)
        return longest if self.n_max is None else min(self.n_max, longest)

    def __str__(self) -> str:
        cap = "" if self.n_max is None or not self.types else f", n_max {self.n_max}"
        return f"{','.join(self.types) or 'none'} ({self.why}){cap}"


def possible(parts: Parts) -> tuple[str, ...]:
    """The types that can be made of these parts, in priority order."""
    return tuple(name for name in KNOWN if name in BUILT and (parts.draft or not BUILT[name].needs_model))


def make(name: str, settings: Settings, parts: Parts) -> Drafter:
    """The drafter of a type."""
    return BUILT[name].make(settings, parts)


def choose(settings: Settings, *, target_nextn: int, draft_arch: str | None, draft_nextn: int) -> Choice:
    """From what was asked, else from the files. Raises UsageError for what cannot run.

    target_nextn, draft_nextn: multi-token-prediction layers; draft_arch: the -md file's
    architecture, None without -md.
    """
    n_max = settings.spec_draft_n_max
    if settings.spec_type is not None:
        types = named(settings.spec_type, settings.origins.get("spec_type", "--spec-type"))
        if "draft-simple" in types:
            if draft_arch is None:
                raise UsageError("--spec-type draft-simple needs a draft model: give -md")
            _plain_draft(settings, draft_arch)
        why = _origin(settings, "spec_type", "--spec-type")
    elif draft_arch is not None:
        _plain_draft(settings, draft_arch, draft_nextn)
        types, why = ("draft-simple",), _origin(settings, "model_draft", "-md")
    else:
        types, why = ("ngram-simple",), "automatic, no -md"
        if target_nextn:
            why += "; the model's MTP layers cannot be used yet"
        n_max = AUTOMATIC_N_MAX if n_max is None else n_max
    if n_max is None and types == ("draft-simple",):
        n_max = DEFAULT_N_MAX
    if settings.spec_draft_n_max is not None or "draft-simple" in types:
        n_min, most = settings.spec_draft_n_min, _draft_n_max(settings)
        if n_min > most:
            raise UsageError(f"--spec-draft-n-min: {n_min} is more than --spec-draft-n-max {most}")
    return Choice(types, why, n_max)


def _origin(settings: Settings, field: str, flag: str) -> str:
    origin = settings.origins.get(field, flag)
    return f"from {flag if origin.startswith(flag) else origin}"


def _plain_draft(settings: Settings, arch: str, nextn: int = 0) -> None:
    """Refuse a file that is no language model of its own."""
    head = HEADS.get(arch) or ("draft-mtp" if nextn else None)
    if head:
        raise UsageError(f"draft model {settings.model_draft} is made for {head}, which cannot be run yet; {_built()}")


def named(names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """The types that were asked for, in priority order. Raises UsageError for what cannot run."""
    for name in names:
        if name in KNOWN and name not in BUILT:
            raise UsageError(f"{origin}: {name} cannot be run yet; {_built()}")
        if name not in KNOWN and name != "none":
            near = SHORT.get(name) or next(iter(difflib.get_close_matches(name, KNOWN)), None)
            hint = f" (did you mean {near}?)" if near else ""
            raise UsageError(f"{origin}: unknown speculative type: {name or repr(name)}{hint}; {_built()}")
    if "none" in names and len(set(names)) > 1:
        raise UsageError(f"{origin}: none cannot be combined with {', '.join(n for n in names if n != 'none')}")
    return tuple(name for name in KNOWN if name in names)


def _built() -> str:
    return "what can: none, " + ", ".join(BUILT)
