"""What a run will load: which drafters, which context sizes, checked before any weights are read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from spec_cli import machine
from spec_cli.drafters.table import Choice, choose
from spec_cli.errors import FileError, UsageError
from spec_cli.llama.context import ContextParams, cache_type, gpu_offload
from spec_cli.llama.fit import context_bytes
from spec_cli.llama.header import check_file
from spec_cli.llama.model import Model
from spec_cli.llama.vocab import require_compatible
from spec_cli.settings import MOST_CTX, Settings

GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class Plan:
    """The drafters of a run and the contexts it creates; the draft's is not used without a draft model."""

    choice: Choice
    target: ContextParams
    draft: ContextParams


def plan(settings: Settings, say: Callable[[str], None]) -> Plan:
    """Read the files' headers and vocabularies, choose the drafters, size the contexts.

    Raises FileError for what is no usable model or does not fit together, UsageError for what was
    asked and cannot be.
    """
    assert settings.model is not None
    for flag, kind in (("-ctv/--cache-type-v", "cache_type_v"), ("-ctvd/--cache-type-v-draft", "cache_type_v_draft")):
        if settings.flash_attn == 0 and getattr(settings, kind) not in ("f32", "f16", "bf16"):
            raise UsageError(f"{flag}: {getattr(settings, kind)} needs flash attention, and -fa is off")
    for path, role in ((settings.model, "target"), (settings.model_draft, "draft")):
        if path:
            check_file(path, role)
    with ExitStack() as stack:
        target = stack.enter_context(Model(settings.model, "target", dry=True))
        target.require_language_model()
        draft = None
        if settings.model_draft:
            draft = stack.enter_context(Model(settings.model_draft, "draft", dry=True))
        choice = choose(
            settings,
            target_nextn=target.n_nextn,
            draft_arch=draft.arch if draft else None,
            draft_nextn=draft.n_nextn if draft else 0,
        )
        if draft and not choice.needs_model:
            say(f"-md {settings.model_draft} is not used by {','.join(choice.types) or 'none'}")
            draft = None
        if draft:
            draft.require_language_model()
            require_compatible(target.vocab, draft.vocab, str(target.path), str(draft.path))
        if not settings.ctx_size and not 1 <= target.n_ctx_train <= MOST_CTX:
            raise FileError(f"target model {target.path} says its context has {target.n_ctx_train} tokens: -c sets one")
        wanted = _wanted(settings, choice, settings.ctx_size or target.n_ctx_train)
        if gpu_offload() and settings.gpu_layers != 0:
            return wanted  # the cache lies on the device, which refuses what it cannot hold
        return _fitted(settings, wanted, target, draft, say)


def _wanted(settings: Settings, choice: Choice, n_ctx: int) -> Plan:
    """Everything as it was asked, for a context of this size."""
    threads = settings.threads if settings.threads > 0 else machine.usable_cores()
    batch = settings.threads_batch if settings.threads_batch > 0 else threads
    target = ContextParams(
        n_ctx=n_ctx,
        n_batch=settings.batch_size,
        n_ubatch=settings.ubatch_size,
        n_outputs=1 + choice.longest(settings),
        n_threads=threads,
        n_threads_batch=batch,
        flash_attn=settings.flash_attn,
        type_k=cache_type(settings.cache_type_k),
        type_v=cache_type(settings.cache_type_v),
    )
    draft = replace(
        target,
        n_ctx=settings.ctx_size_draft or n_ctx,
        n_outputs=1,
        n_threads=settings.threads_draft if settings.threads_draft > 0 else threads,
        n_threads_batch=settings.threads_batch_draft if settings.threads_batch_draft > 0 else batch,
        type_k=cache_type(settings.cache_type_k_draft),
        type_v=cache_type(settings.cache_type_v_draft),
    )
    return Plan(choice, target.clipped(), draft.clipped())


def _fitted(settings: Settings, wanted: Plan, target: Model, draft: Model | None, say: Callable[[str], None]) -> Plan:
    """The plan if memory holds it, else with a smaller context where none was asked for."""

    def bytes_of(p: Plan) -> int:
        return (context_bytes(target, p.target) or 0) + ((context_bytes(draft, p.draft) or 0) if draft else 0)

    free = machine.free_memory()  # weights that do not fit are read from the file as they are needed
    free = max(free // 8, free - target.n_bytes - (draft.n_bytes if draft else 0))
    need, n_ctx = bytes_of(wanted), wanted.target.n_ctx
    while not settings.ctx_size and need > free / 2 and n_ctx > 256:
        n_ctx = max(256, min(n_ctx - 256, int(n_ctx * free / 2 / need)) // 256 * 256)
        need = bytes_of(_wanted(settings, wanted.choice, n_ctx))
    if need > free:
        asked = [
            (f, settings.origins[f]) for f in ("ctx_size", "ctx_size_draft", "ubatch_size") if f in settings.origins
        ]
        what = ", ".join(f"{origin} {getattr(settings, field)}" for field, origin in asked)
        raise UsageError(f"{what or 'the smallest context'}: needs {_size(need)}, {_size(free)} are free")
    if n_ctx < wanted.target.n_ctx:
        own = f"the model's {target.n_ctx_train}"
        say(f"context: {n_ctx} tokens of {own}, to fit in half of the free memory (-c sets it)")
    if n_ctx > target.n_ctx_train > 0:
        say(f"context: {n_ctx} tokens, more than the {target.n_ctx_train} that the model was made for")
    return _wanted(settings, wanted.choice, n_ctx)


def _size(n: float) -> str:
    return f"{n / GIB:.1f} GiB" if n >= GIB else f"{n / MIB:.0f} MiB"
