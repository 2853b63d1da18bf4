"""Which ways of guessing there are, and which one a run uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spec_cli.contracts import Drafter
from spec_cli.drafters.draft_head import DraftHead, Head
from spec_cli.drafters.draft_simple import DraftModel, DraftSimple
from spec_cli.drafters.greedy import Limits
from spec_cli.drafters.ngram_simple import NgramSimple
from spec_cli.errors import FileError, UsageError, did_you_mean
from spec_cli.llama.header import Header
from spec_cli.llama.hidden import NEXTN_STATES
from spec_cli.settings import TYPE_ALIASES, Settings

# llama.cpp's names in its order of priority (common/speculative.cpp); the user's order does not matter.
KNOWN = (
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
    "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
)  # fmt: skip
MODEL_TYPES = ("draft-simple", "draft-eagle3", "draft-mtp")  # a run has one of them at most
AUTOMATIC_N_MAX = 8  # a rejected 48-token draft costs ten passes and more on a CPU
DEFAULT_N_MAX = 3


@dataclass(frozen=True)
class Parts:
    """What a drafter may be made of: a draft model, or a head of this type."""

    draft: DraftModel | None
    target_vocab: int
    say: Callable[[str], None]
    head: Head | None = None
    head_type: str = ""


@dataclass(frozen=True)
class Kind:
    """A way of guessing that can be run: its longest draft, whether the parts are there, how it is made."""

    longest: Callable[[Settings], int]
    can: Callable[[Parts], bool]
    make: Callable[[Settings, Parts], Drafter]


def _draft_n_max(s: Settings) -> int:
    return DEFAULT_N_MAX if s.spec_draft_n_max is None else s.spec_draft_n_max


def _limits(s: Settings) -> Limits:
    return Limits(_draft_n_max(s), s.spec_draft_n_min, s.spec_draft_p_min)


def _draft_simple(s: Settings, parts: Parts) -> Drafter:
    assert parts.draft is not None
    return DraftSimple(parts.draft, parts.target_vocab, _limits(s), parts.say)


def _head(name: str) -> Kind:
    def make(s: Settings, parts: Parts) -> Drafter:
        assert parts.head is not None
        return DraftHead(name, parts.head, parts.target_vocab, _limits(s), parts.say)

    return Kind(_draft_n_max, lambda parts: parts.head_type == name, make)


BUILT = {
    "ngram-simple": Kind(
        lambda s: s.spec_ngram_simple_size_m,
        lambda parts: True,
        lambda s, parts: NgramSimple(s.spec_ngram_simple_size_n, s.spec_ngram_simple_size_m),
    ),
    "draft-simple": Kind(_draft_n_max, lambda parts: parts.draft is not None, _draft_simple),
    "draft-eagle3": _head("draft-eagle3"),
    "draft-mtp": _head("draft-mtp"),
}


@dataclass(frozen=True)
class Choice:
    """The types of a run in priority order, why, and the cap on every draft (None: each type's own).

    head: the type of these that reads the target's hidden states; own_head: its blocks lie in the
    target's file. uses_draft: -md's file is loaded.
    """

    types: tuple[str, ...]
    why: str
    n_max: int | None
    head: str = ""
    own_head: bool = False
    uses_draft: bool = False

    def longest(self, settings: Settings) -> int:
        """The longest draft that the types can make."""
        longest = max((BUILT[t].longest(settings) for t in self.types), default=0)
        return longest if self.n_max is None else min(self.n_max, longest)

    def __str__(self) -> str:
        cap = "" if self.n_max is None or not self.types else f", n_max {self.n_max}"
        return f"{','.join(self.types) or 'none'} ({self.why}){cap}"


def possible(parts: Parts) -> tuple[str, ...]:
    """The types that can be made of these parts, in priority order."""
    return tuple(name for name in KNOWN if name in BUILT and BUILT[name].can(parts))


def make(name: str, settings: Settings, parts: Parts) -> Drafter:
    """The drafter of a type."""
    return BUILT[name].make(settings, parts)


def choose(settings: Settings, target: Header, draft: Header | None) -> Choice:
    """From what was asked, else from the files. Raises UsageError or FileError for what cannot run.

    draft: of -md's file, None without -md.
    """
    n_max = settings.spec_draft_n_max
    if settings.spec_type is not None:
        types = named(settings.spec_type, settings.origins.get("spec_type", "--spec-type"))
        why = _origin(settings, "spec_type", "--spec-type")
    elif draft is not None:
        types, why = (_made_for(target, draft),), _origin(settings, "model_draft", "-md")
    elif target.n_heads and target.arch in NEXTN_STATES:
        types, why = ("draft-mtp",), "automatic, the model has MTP layers"
    else:
        types, why = ("ngram-simple",), "automatic, no -md"
        n_max = AUTOMATIC_N_MAX if n_max is None else n_max
    require_sizes(types, settings)
    kinds = [name for name in types if name in MODEL_TYPES]
    if len(kinds) > 1:
        raise UsageError(f"--spec-type: {' and '.join(kinds)} would share one draft model: name one of them")
    kind = kinds[0] if kinds else ""
    own_head = kind == "draft-mtp" and draft is None
    if kind:
        _require(kind, target, draft)
        if n_max is None and len(types) == 1:
            n_max = DEFAULT_N_MAX
        n_heads, arch = (draft or target).n_heads, (draft or target).arch
        if kind == "draft-mtp" and 1 < n_heads < _draft_n_max(settings) and arch != "gemma4-assistant":
            n_max, why = n_heads, f"{why}; one guess for each of its {n_heads} MTP layers"
    if settings.spec_draft_n_max is not None or kind:
        n_min, most = settings.spec_draft_n_min, _draft_n_max(settings)
        if n_min > most:
            raise UsageError(f"--spec-draft-n-min: {n_min} is more than --spec-draft-n-max {most}")
    head = kind if kind != "draft-simple" else ""
    return Choice(types, why, n_max, head, own_head, uses_draft=bool(kind) and not own_head)


def require_sizes(types: tuple[str, ...], settings: Settings) -> None:
    """Raises UsageError for sizes with which a type never guesses."""
    n, m = settings.spec_ngram_simple_size_n, settings.spec_ngram_simple_size_m
    if "ngram-simple" in types and m < n:
        origin = settings.origins.get("spec_ngram_simple_size_m", "--spec-ngram-simple-size-m")
        raise UsageError(f"{origin}: {m} is below --spec-ngram-simple-size-n {n}: ngram-simple would never guess")


def _origin(settings: Settings, field: str, flag: str) -> str:
    origin = settings.origins.get(field, flag)
    return f"from {flag if origin.startswith(flag) else origin}"


def _made_for(target: Header, draft: Header) -> str:
    """The type that a draft file is made for, by its metadata."""
    if draft.arch == "eagle3":
        return "draft-eagle3"
    if draft.arch == "dflash":
        raise UsageError(f"draft model {draft.path} is made for draft-dflash, which cannot be run yet; {_built()}")
    # a whole model with MTP layers is a head for models of its own kind and width, a draft model for others
    alike = (draft.arch, draft.width) == (target.arch, target.width)
    return "draft-mtp" if draft.n_heads and (not draft.is_model or alike) else "draft-simple"


def _require(kind: str, target: Header, draft: Header | None) -> None:
    """Refuse a file of another kind than the type that was asked for, and a target that gives its layers nothing."""
    if draft is None:
        if kind != "draft-mtp":
            raise UsageError(f"--spec-type {kind} needs a draft model: give -md")
        if not target.n_heads:
            raise UsageError(
                f"--spec-type draft-mtp: {target.path} has no multi-token-prediction layers (-md names a file)"
            )
        if target.arch not in NEXTN_STATES:
            raise FileError(f"draft-mtp: llama.cpp does not run the MTP layers of {target.arch} models ({target.path})")
    elif kind == "draft-mtp" and draft.n_heads and target.arch not in NEXTN_STATES:
        instead = "leave -md out"
        if draft.is_model:
            own = f"-m {draft.path} alone runs with its own, " if draft.arch in NEXTN_STATES else ""
            instead = f"{own}--spec-type draft-simple takes it for a draft model"
        what = f"draft-mtp: MTP layers, such as those of {draft.path}, read hidden states of their target"
        raise FileError(f"{what}, and llama.cpp gives none of {target.arch} models ({target.path}): {instead}")
    elif kind == "draft-mtp" and not draft.n_heads:
        raise UsageError(f"--spec-type draft-mtp: draft model {draft.path} has no multi-token-prediction layers")
    elif (kind == "draft-eagle3") != (draft.arch == "eagle3"):
        raise UsageError(f"--spec-type {kind}: draft model {draft.path} is made for {_made_for(target, draft)}")
    elif kind == "draft-simple" and not draft.is_model:
        raise UsageError(f"--spec-type draft-simple: draft model {draft.path} is made for draft-mtp")


def named(names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """The types that were asked for, in priority order. Raises UsageError for what cannot run."""
    for name in names:
        if name in KNOWN and name not in BUILT:
            nearest = "ngram-simple" if name.startswith("ngram") else "draft-eagle3"
            raise UsageError(f"{origin}: {name} cannot be run yet, {nearest} is the nearest that can; {_built()}")
        if name not in KNOWN and name != "none":
            hint = did_you_mean(name, (*KNOWN, *TYPE_ALIASES))
            raise UsageError(f"{origin}: unknown speculative type: {name or repr(name)}{hint}; {_built()}")
    if "none" in names and len(set(names)) > 1:
        raise UsageError(f"{origin}: none cannot be combined with {', '.join(n for n in names if n != 'none')}")
    return tuple(name for name in KNOWN if name in names)


def _built() -> str:
    return "what can: none, " + ", ".join(BUILT)
