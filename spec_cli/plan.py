"""What a run will load: which drafters, which context sizes, checked before any weights are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence as Seq
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from spec_cli import machine
from spec_cli.apart import Ended, apart, can_fork
from spec_cli.drafters.table import AUTOMATIC_N_MAX, Choice, choose
from spec_cli.errors import FileError, UsageError
from spec_cli.llama.context import ContextParams, cache_type, gpu_offload
from spec_cli.llama.faults import fault_of
from spec_cli.llama.fit import context_bytes
from spec_cli.llama.head import ENCODER
from spec_cli.llama.head_fit import require_fitting
from spec_cli.llama.header import check_file
from spec_cli.llama.loading import LoadParams, check_adapters, check_patterns
from spec_cli.llama.model import Model
from spec_cli.llama.sampler import check_constraint
from spec_cli.llama.vocab import require_compatible
from spec_cli.settings import AUTOMATIC_ROWS, MOST_CTX, ROPE_SCALING, Settings, read_kv_override

GIB, MIB = 1 << 30, 1 << 20
SHORT_CTX = 4096  # rather fewer rows at a time than rows with less than this


@dataclass(frozen=True)
class Plan:
    """The drafters of a run and the contexts it creates; the draft's is not used without a draft model or head.

    n_max: the longest draft that the contexts have room for.
    """

    choice: Choice
    n_max: int
    target: ContextParams
    draft: ContextParams


def plan(
    settings: Settings, say: Callable[[str], None], *, batch: bool = False, free: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Plan:  # fmt: skip
    """Read the files' headers and vocabularies, choose the drafters, size the contexts.

    free: each text may choose its drafters. batch: so, and up to `settings.parallel` texts at a time.
    stop: whether to give up. All this happens in a process of its own where the system allows it.
    Raises FileError for what is no usable model or does not fit together, UsageError for what was
    asked and cannot be, Interrupted.
    """
    if not can_fork() or gpu_offload():  # a GPU's driver does not survive a fork
        for name, fault in _faults(settings):
            raise FileError(f"{name}: {fault}, over which llama.cpp ends the process")
        return _plan(settings, say, batch, free)
    try:
        return apart(lambda tell: _plan(settings, tell, batch, free), say, stop)
    except Ended as ended:
        with suppress(Ended):
            for name, fault in apart(lambda tell: _faults(settings), say, stop):
                if name == ended.what:
                    raise FileError(f"{name}: {fault}: llama.cpp ends the process over it ({ended.why})") from None
        raise


def _faults(settings: Settings) -> list[tuple[str, str]]:
    """The files of a run over whose headers llama.cpp ends the process, each with the reason."""
    overrides = dict(map(read_kv_override, settings.override_kv))
    found = []
    for role, path in (("target", settings.model), ("draft", settings.model_draft)):
        if path is not None:
            check_file(path, role, overrides)
            if fault := fault_of(path, role, overrides):
                found.append((f"{role} model {path}", fault))
    return found


def _plan(settings: Settings, say: Callable[[str], None], batch: bool, free: bool) -> Plan:
    assert settings.model is not None
    for flag, kind in (("-ctv/--cache-type-v", "cache_type_v"), ("-ctvd/--cache-type-v-draft", "cache_type_v_draft")):
        if settings.flash_attn == 0 and getattr(settings, kind) not in ("f32", "f16", "bf16"):
            raise UsageError(f"{flag}: {getattr(settings, kind)} needs flash attention, and -fa is off")
    overrides = dict(map(read_kv_override, settings.override_kv))
    header = check_file(settings.model, "target", overrides)
    header_draft = check_file(settings.model_draft, "draft", overrides) if settings.model_draft else None
    how = replace(LoadParams.of(settings), mtp=header.n_heads > 0)
    how_draft = replace(LoadParams.of(settings, draft=True), mtp=header_draft is not None and header_draft.n_heads > 0)
    check_adapters(how)
    for params in (how, how_draft):
        check_patterns(params)
    with ExitStack() as stack:
        target = stack.enter_context(Model(settings.model, "target", how, dry=True))
        target.require_language_model()
        check_constraint(settings, target.vocab)
        choice = choose(settings, header, header_draft)
        draft = None
        if settings.model_draft:
            draft = stack.enter_context(Model(settings.model_draft, "draft", how_draft, dry=True))
        if draft and not choice.uses_draft:
            say(f"-md {settings.model_draft} is not used by {','.join(choice.types) or 'none'}")
            draft = None
        if choice.head:
            draft = target if choice.own_head else draft
            assert draft is not None
            require_fitting(target, draft, overrides)
            if settings.ctx_size_draft:
                say(f"-cd {settings.ctx_size_draft} is not used: a head's context is as long as its target's")
        elif draft:
            draft.require_language_model()
            require_compatible(target.vocab, draft.vocab, str(target.path), str(draft.path))
            if draft.n_bytes >= target.n_bytes:
                than = "as large as" if draft.n_bytes == target.n_bytes else "larger than"
                sizes = f"{_size(draft.n_bytes)} against {_size(target.n_bytes)}"
                say(f"-md {draft.path} is {than} the target ({sizes}): as a draft model it cannot make it faster")
        if not settings.ctx_size and not 1 <= target.n_ctx_train <= MOST_CTX:
            raise FileError(f"target model {target.path} says its context has {target.n_ctx_train} tokens: -c sets one")
        models = [target, draft] if draft else [target]
        wanted = _Plans(settings, choice, settings.ctx_size or target.n_ctx_train)
        if batch or free:
            wanted = _with_room(wanted)
        if batch:
            wanted = _for_batch(wanted, models, say)
        if gpu_offload() and settings.gpu_layers != 0:
            return wanted.plan()  # the cache lies on the device, which refuses what it cannot hold
        return _fitted(wanted, models, say).plan()


@dataclass(frozen=True)
class _Plans:
    """What was asked, and the sizes that may be lowered: each value of them is a plan."""

    settings: Settings
    choice: Choice
    n_ctx: int
    parallel: int = 1
    n_spare: int = 0
    n_max: int | None = None

    def plan(self) -> Plan:
        s = self.settings
        n_max = self.choice.longest(s) if self.n_max is None else self.n_max
        threads = s.threads if s.threads > 0 else machine.usable_cores()
        batch = s.threads_batch if s.threads_batch > 0 else threads
        target = ContextParams(
            n_ctx=self.n_ctx,
            n_batch=s.batch_size,
            n_ubatch=s.ubatch_size,
            n_sequences=self.parallel,
            n_spare=self.n_spare,
            n_outputs=self.parallel * (1 + n_max),
            n_threads=threads,
            n_threads_batch=batch,
            flash_attn=s.flash_attn,
            type_k=cache_type(s.cache_type_k),
            type_v=cache_type(s.cache_type_v),
            swa_full=s.swa_full,
            offload_kqv=s.kv_offload,
            op_offload=s.op_offload,
            rope_scaling=ROPE_SCALING[s.rope_scaling],
            rope_freq_base=s.rope_freq_base,
            rope_freq_scale=1 / s.rope_scale if s.rope_scale else s.rope_freq_scale,
            yarn_orig_ctx=s.yarn_orig_ctx,
            yarn_ext_factor=s.yarn_ext_factor,
            yarn_attn_factor=s.yarn_attn_factor,
            yarn_beta_slow=s.yarn_beta_slow,
            yarn_beta_fast=s.yarn_beta_fast,
        )
        if self.choice.head:  # hidden states of a whole batch are kept: no longer one than is decoded at a time
            target = replace(target, n_batch=min(s.batch_size, max(s.ubatch_size, target.n_outputs)))
        draft = replace(
            target,
            n_ctx=s.ctx_size_draft or self.n_ctx,
            n_outputs=self.parallel,
            n_threads=s.threads_draft if s.threads_draft > 0 else threads,
            n_threads_batch=s.threads_batch_draft if s.threads_batch_draft > 0 else batch,
            type_k=cache_type(s.cache_type_k_draft),
            type_v=cache_type(s.cache_type_v_draft),
        )
        if self.choice.head:
            draft = replace(draft, n_ctx=self.n_ctx, swa_full=True)
        if self.choice.head == "draft-eagle3":
            most = max(ENCODER, self.parallel)
            draft = replace(draft, n_batch=most, n_ubatch=most, n_outputs=most)
        return Plan(self.choice, n_max, target.clipped(), draft.clipped())

    def bytes(self, models: Seq[Model]) -> int:
        """Memory that the contexts take."""
        plan, target = self.plan(), models[0]
        total = context_bytes(target, plan.target) or 0
        if len(models) > 1:
            total += context_bytes(models[1], plan.draft, (target, plan.target) if self.choice.head else None) or 0
        return total


def _with_room(wanted: _Plans) -> _Plans:
    """With room for drafts that a text may ask for."""
    n_max = wanted.settings.spec_draft_n_max
    if n_max is None:
        n_max = max(wanted.choice.longest(wanted.settings), AUTOMATIC_N_MAX)
    return replace(wanted, n_max=n_max)


def _for_batch(wanted: _Plans, models: Seq[Model], say: Callable[[str], None]) -> _Plans:
    """For several texts at a time."""
    s = wanted.settings
    parallel, origin = s.parallel if s.parallel > 0 else AUTOMATIC_ROWS, s.origins.get("parallel", "-np/--parallel")
    most = min(s.ubatch_size, s.batch_size)
    if most < parallel:
        say(f"{origin}: {most} rows at a time instead of {parallel}, one for each token of a pass (-ub)")
        parallel = most
    recurrent = any(not m.can_drop_suffix for m in models)
    if parallel > 1 and any(m.n_swa and not m.can_drop_suffix for m in models):
        parallel, recurrent = 1, False
        say(f"{origin}: one row at a time: llama.cpp mixes up the texts of a hybrid model with a sliding window")
    if wanted.choice.longest(s) and most < 2 * parallel:
        raise UsageError(f"{origin}: {parallel} rows leave no room for guesses in a pass of {most} tokens (-b, -ub)")
    return replace(wanted, parallel=parallel, n_spare=int(recurrent))


def _fitted(wanted: _Plans, models: Seq[Model], say: Callable[[str], None]) -> _Plans:
    """The plan if memory holds it, else with a smaller context where none was asked for, or fewer texts at a time."""
    s, target = wanted.settings, models[0]
    free = machine.free_memory()  # weights that do not fit are read from the file as they are needed
    free = max(free // 8, free - sum(m.n_bytes for m in dict.fromkeys(models)))
    fit, need = wanted, wanted.bytes(models)

    def lower_ctx(low: int) -> _Plans:
        return replace(fit, n_ctx=max(low, min(fit.n_ctx - 256, int(fit.n_ctx * free / 2 / need)) // 256 * 256))

    while True:
        if not s.ctx_size and need > free / 2 and fit.n_ctx > SHORT_CTX:
            fit = lower_ctx(SHORT_CTX)
        elif fit.parallel > 1 and need > (free if "parallel" in s.origins else free / 2):
            fit = replace(fit, parallel=max(1, min(fit.parallel - 1, int(fit.parallel * free / need))))
        elif not s.ctx_size and need > free / 2 and fit.n_ctx > 256:
            fit = lower_ctx(256)
        else:
            break
        need = fit.bytes(models)
    if need > free:
        asked = [(f, s.origins[f]) for f in ("ctx_size", "ctx_size_draft", "ubatch_size") if f in s.origins]
        what = ", ".join(f"{origin} {getattr(s, field)}" for field, origin in asked)
        raise UsageError(f"{what or 'the smallest context'}: needs {_size(need)}, {_size(free)} are free")
    if fit.parallel < wanted.parallel:
        origin = s.origins.get("parallel", "-np/--parallel")
        say(f"{origin}: {fit.parallel} rows at a time instead of {wanted.parallel}, to fit in the free memory")
    if fit.n_ctx < wanted.n_ctx:
        own = f"the model's {target.n_ctx_train}"
        say(f"context: {fit.n_ctx} tokens of {own}, to fit in half of the free memory (-c sets it)")
    if fit.n_ctx > target.n_ctx_train > 0:
        say(f"context: {fit.n_ctx} tokens, more than the {target.n_ctx_train} that the model was made for")
    return fit


def _size(n: float) -> str:
    return f"{n / GIB:.1f} GiB" if n >= GIB else f"{n / MIB:.0f} MiB"
