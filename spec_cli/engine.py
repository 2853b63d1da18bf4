"""Builds the target, the draft and the drafters, runs the loop, closes everything."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Container
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from types import TracebackType

from spec_cli.answer import Answer, answer_of
from spec_cli.drafters.chain import Chain
from spec_cli.drafters.draft_head import DraftHead
from spec_cli.drafters.table import Parts, make, named, possible, require_sizes
from spec_cli.errors import Interrupted, PromptError, UsageError
from spec_cli.llama import log
from spec_cli.llama.abort import Abort
from spec_cli.llama.context import gpu_offload
from spec_cli.llama.head import HeadSession
from spec_cli.llama.head_fit import target_layers
from spec_cli.llama.loading import LoadParams, about_devices
from spec_cli.llama.logprobs import LogProbs
from spec_cli.llama.model import Model, has_amx
from spec_cli.llama.sampler import Sampler, require_known_tokens
from spec_cli.llama.session import Session
from spec_cli.llama.threads import Threads
from spec_cli.llama.vocab import Vocab
from spec_cli.plan import Plan, plan
from spec_cli.scheduler import Job, Scheduler
from spec_cli.sequence import Sequence
from spec_cli.settings import RANDOM_SEED, Settings, seed_of
from spec_cli.tokens import Kind, common_prefix, tokens
from spec_cli.values import read

# common/common.cpp, common_init_sampler_from_model: what a file suggests where nothing was said.
FILE_DEFAULTS = {
    "samplers": "sequence",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "mirostat": "mirostat",
    "mirostat_ent": "mirostat_tau",
    "mirostat_lr": "mirostat_eta",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "temp": "temp",
    "repeat_last_n": "penalty_last_n",
    "repeat_penalty": "penalty_repeat",
}


def with_file_defaults(settings: Settings, model: Model) -> Settings:
    """The settings with the model file's `general.sampling.*` for what nobody set."""
    unset = Settings()
    found = {}
    for field, key in FILE_DEFAULTS.items():
        text = model.meta(f"general.sampling.{key}")
        given = {field, "sampler_seq"} if field == "samplers" else {field}
        if text is not None and not given & set(settings.origins) and getattr(settings, field) == getattr(unset, field):
            found[field] = read(field, text, f"{model.path} general.sampling.{key}")
    return replace(settings, **found) if found else settings


def _adaptive(settings: Settings, plans: Plan) -> Threads | None:
    """The number of threads as other programs leave it; None where it was given, or where a GPU computes."""
    given = settings.threads > 0 or settings.threads_batch > 0 or (gpu_offload() and settings.gpu_layers != 0)
    return None if given or plans.target.n_threads < 2 else Threads(plans.target.n_threads)


class Engine:
    """A loaded target with its drafters. `say` gets each thing a person should know, once.

    free: each text may have its own `spec_type` and draft length. batch: so, and several run at a time.
    Raises UsageError, FileError or BackendError, with nothing left open.
    """

    def __init__(
        self, settings: Settings, say: Callable[[str], None] = lambda line: None, abort: Abort | None = None,
        *, batch: bool = False, free: bool = False,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._said: set[str] = set()
        self._say_line = say
        self.abort = Abort() if abort is None else abort
        with ExitStack() as stack:
            plans = plan(settings, self.say, batch=batch, free=free, stop=lambda: self.abort.is_set)
            for line in about_devices(settings):
                self.say(line)
            self.say(f"speculation: {plans.choice}")
            log.show(log.INFO if settings.verbose else None)
            self._load(stack, plans, batch, free or batch)
            self._stack = stack.pop_all()

    def say(self, line: str) -> None:
        """Tell the person, once."""
        if line not in self._said:
            self._said.add(line)
            self._say_line(line)

    def _load(self, stack: ExitStack, plans: Plan, batch: bool, free: bool) -> None:
        settings, self.choice = self.settings, plans.choice
        assert settings.model is not None
        repack = settings.repack
        if repack is None:
            repack = not has_amx()
            if not repack:
                self.say("weights stay as they are: AMX kernels can crash (--repack uses them)")
        how, how_draft = (replace(LoadParams.of(settings, draft=draft), repack=repack) for draft in (False, True))
        how = replace(how, mtp=self.choice.own_head)
        how_draft = replace(how_draft, mtp=self.choice.head == "draft-mtp")
        model = Model(settings.model, "target", how, abort=self.abort)
        stack.callback(model.close)
        self.settings = settings = with_file_defaults(settings, model)
        self.vocab: Vocab = model.vocab
        self.name = model.meta("general.name") or model.path.name
        self.chat_template = settings.chat_template or model.meta("tokenizer.chat_template")
        draft = None
        if self.choice.uses_draft and settings.model_draft:
            draft = Model(settings.model_draft, "draft", how_draft, abort=self.abort)
            stack.callback(draft.close)
        self.threads = _adaptive(settings, plans)
        threads_draft = None if settings.threads_draft > 0 or settings.threads_batch_draft > 0 else self.threads
        self.target = Session(model, plans.target, self.abort, self.threads)
        stack.callback(self.target.close)
        if settings.ctx_size and self.target.n_ctx != settings.ctx_size:
            self.say(f"context: {self.target.n_ctx} tokens (-c {settings.ctx_size}, rounded up)")
        self.n_rows = plans.target.n_sequences
        room = self.target.n_outputs // self.n_rows - 1
        self._longest = min(room, plans.n_max)
        wanted = plans.n_max if batch else self.choice.longest(settings)
        if 0 < room < wanted:  # without any room, the answer's own line says so
            each = f" for {self.n_rows} rows" if batch else ""
            self.say(f"drafts are cut to {room} guesses: a batch has {self.target.n_batch} tokens{each} (-b, -ub, -c)")
        draft_session = head = None
        if self.choice.head:
            head = HeadSession(draft or model, plans.draft, self.target, self.abort, threads_draft)
            stack.callback(head.close)
        elif draft:
            draft_session = Session(draft, plans.draft, self.abort, threads_draft)
            stack.callback(draft_session.close)
        self._memories = [each.memory for each in (self.target, draft_session, head) if each]
        parts = Parts(draft_session, self.target.n_vocab, self.say, head, self.choice.head)
        drafters = {name: make(name, settings, parts) for name in (possible(parts) if free else self.choice.types)}
        if head:
            reader = drafters[self.choice.head]
            assert isinstance(reader, DraftHead)
            self.target.feed(reader, target_layers(draft) if draft and head.encodes else ())
        drafter = Chain(list(drafters.values()))
        spare = self.n_rows if plans.target.n_spare else None
        self.scheduler = Scheduler(self.target, drafter, self.n_rows, spare)

    @property
    def drafter(self) -> Chain:
        """Who guesses."""
        return self.scheduler.drafter

    def start(
        self, prompt: array[int], settings: Settings | None = None, emit: Callable[[str], None] = lambda text: None,
        mark: Callable[[Kind], None] = lambda kind: None, printed: Container[int] = (),
    ) -> Job:  # fmt: skip
        """Queue one prompt; `scheduler.step` goes on with it. printed: control tokens that are text here.

        Raises PromptError when the prompt does not fit the context, UsageError for what it asks in vain.
        """
        settings = settings or self.settings
        if not prompt:
            raise UsageError("the prompt is empty: this model adds no token of its own to start from")
        if len(prompt) > self.target.n_ctx:
            raise PromptError(f"the prompt has {len(prompt)} tokens, the context {self.target.n_ctx} (-c/--ctx-size)")
        types, n_max = self.require_possible(settings)
        fixed = seed_of(settings)
        seed = secrets.randbelow(RANDOM_SEED) if fixed is None else fixed
        s = Sequence(
            prompt, Sampler(self.vocab, settings, seed, prompt), self.vocab, seed=seed, n_predict=settings.predict,
            n_ctx=self.target.n_ctx, types=types, n_max=n_max, stops=settings.stop, special=settings.special, emit=emit,
            mark=mark, printed=printed,
            logprobs=None if settings.logprobs is None else LogProbs(self.vocab, settings.logprobs),
        )  # fmt: skip
        job = Job(s)
        self.scheduler.add(job)
        return job

    def require_possible(self, settings: Settings) -> tuple[tuple[str, ...], int | None]:
        """Who may guess for a text with these settings, and how far. Raises UsageError for what this run cannot do."""
        require_known_tokens(settings, self.vocab)
        types, n_max, asked = self.choice.types, self.choice.n_max, settings.spec_draft_n_max
        if settings.spec_type != self.settings.spec_type:
            types, n_max = named(settings.spec_type or (), "spec_type"), None
            absent = [name for name in types if name not in self.drafter.calls]
            if absent:
                raise UsageError(f"spec_type: {absent[0]} needs a draft model or head that this run uses (-md)")
            require_sizes(types, self.settings)
        if asked is None:
            return types, n_max
        if types and asked > self._longest and asked != self.settings.spec_draft_n_max:
            room = f"{self._longest} guess{'es' * (self._longest != 1)} that this run has room for"
            raise UsageError(f"n_max: {asked} is more than the {room} (--spec-draft-n-max, -b, -ub, -np)")
        return types if asked else (), asked

    def check(self, settings: Settings) -> None:
        """Raises UsageError where a text cannot have these settings in this run."""
        self.require_possible(settings)
        Sampler(self.vocab, settings, 0, tokens()).close()

    def generate(
        self, prompt: array[int], settings: Settings | None = None, emit: Callable[[str], None] = lambda text: None,
        mark: Callable[[Kind], None] = lambda kind: None, printed: Container[int] = (),
        watch: Callable[[Job], None] = lambda job: None,
    ) -> Answer:  # fmt: skip
        """Answer one prompt. emit gets the text as it is made, mark before it the kind of its tokens.

        watch sees how it goes on, after each pass.

        An interruption (the abort byte) ends the text, it does not raise.
        Raises PromptError when the prompt does not fit the context, BackendError when the model gives no logits.
        """
        known = common_prefix(self.target.memory.held(0), prompt)
        job, reused = self.start(prompt, settings, emit, mark, printed), self.target.graphs_reused
        try:
            while not job.s.finish:
                self.scheduler.step()
                watch(job)
                if self.abort.is_set:
                    raise Interrupted("interrupted")
        except Interrupted:
            job.s.end("interrupted")
            if not job.stats.predicted_n:
                held = len(self.target.memory.held(max(0, job.s.id)))
                job.stats.cache_n, job.stats.prompt_n = min(known, held), max(0, held - known)
                job.stats.prompt_s = perf_counter() - job.since
        finally:
            self.scheduler.drop()
        if job.s.error:
            raise job.s.error
        job.stats.graphs_reused = self.target.graphs_reused - reused
        if job.s.error:
            raise job.s.error
        return answer_of(job)

    def say_if_busy(self) -> None:
        """Say, once, that other programs use the cores, where passes ran on fewer threads for that reason."""
        if self.threads and self.threads.lowered:
            self.say(
                f"other programs use the cores: passes ran on fewer than {self.threads.most} threads (-t fixes it)"
            )

    def forget(self) -> None:
        """Empty the memories: the next text is decoded from its first token on."""
        for memory in self._memories:
            memory.forget()

    def why_nothing_drafted(self, answer: Answer) -> str:
        """The reason for an answer without a single guess, in a few words."""
        types, stats = answer.types, answer.stats
        if answer.n_max == 0:
            return "--spec-draft-n-max 0, nothing was drafted"
        if not types:
            return "none, nothing was drafted"
        if self.target.n_outputs < 2:
            return f"a batch of {self.target.n_batch} (-b) leaves no room for guesses"
        cut = answer.finish_reason in ("length", "context")  # the last round had no room for a guess then
        if stats.rounds - cut < 1:
            return "the answer ended before the first draft"
        if types == ("ngram-simple",):
            n, m = self.settings.spec_ngram_simple_size_n, self.settings.spec_ngram_simple_size_m
            seen = stats.cache_n + stats.prompt_n + stats.predicted_n - 1 - cut  # when a guess was looked for last
            if seen <= n + m + 2:
                needs = f"ngram-simple with n {n} and m {m} needs a text of more than {n + m + 2} tokens"
                return f"no drafts, {needs} (--spec-ngram-simple-size-n, --spec-ngram-simple-size-m)"
            return "ngram-simple found no repeats"
        return f"{','.join(types)} made no guess"

    def close(self) -> None:
        """Free contexts, then models, once."""
        self._stack.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
