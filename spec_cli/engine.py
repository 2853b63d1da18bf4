"""Builds the target, the draft and the drafters, runs the loop, closes everything."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Sequence as Seq
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType

from spec_cli.drafters.chain import Chain
from spec_cli.drafters.table import Parts
from spec_cli.errors import Interrupted, PromptError, UsageError
from spec_cli.llama import log
from spec_cli.llama.abort import Abort
from spec_cli.llama.model import Model, has_amx
from spec_cli.llama.sampler import Sampler
from spec_cli.llama.session import Session
from spec_cli.llama.vocab import Vocab
from spec_cli.plan import Plan, plan
from spec_cli.sequence import Sequence
from spec_cli.settings import Settings, seed_of
from spec_cli.speculate import speculate
from spec_cli.stats import Stats
from spec_cli.values import read


@dataclass(frozen=True)
class Answer:
    """What one prompt gave."""

    text: str
    tokens: array[int]
    finish_reason: str
    stop: str | None
    seed: int
    n_prompt: int
    stats: Stats


# common/common.cpp, common_init_sampler_from_model: what a file suggests where nothing was said.
FILE_DEFAULTS = {
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
        if text is not None and field not in settings.origins and getattr(settings, field) == getattr(unset, field):
            found[field] = read(field, text, f"{model.path} general.sampling.{key}")
    return replace(settings, **found) if found else settings


class Engine:
    """A loaded target with its drafters. `say` gets each thing a person should know, once.

    Raises UsageError, FileError or BackendError, with nothing left open.
    """

    def __init__(
        self, settings: Settings, say: Callable[[str], None] = lambda line: None, abort: Abort | None = None
    ) -> None:
        self.settings = settings
        self._said: set[str] = set()
        self._say_line = say
        self.abort = Abort() if abort is None else abort
        with ExitStack() as stack:
            plans = plan(settings, self.say)
            self.say(f"speculation: {plans.choice}")
            log.show(log.INFO if settings.verbose else None)
            self._load(stack, plans)
            self._stack = stack.pop_all()

    def say(self, line: str) -> None:
        """Tell the person, once."""
        if line not in self._said:
            self._said.add(line)
            self._say_line(line)

    def _load(self, stack: ExitStack, plans: Plan) -> None:
        settings, self.choice = self.settings, plans.choice
        assert settings.model is not None
        repack = settings.repack
        if repack is None:
            repack = not has_amx()
            if not repack:
                self.say("weights stay as they are: AMX kernels can crash (--repack uses them)")
        model = Model(settings.model, "target", n_gpu_layers=settings.gpu_layers, repack=repack, abort=self.abort)
        stack.callback(model.close)
        self.settings = settings = with_file_defaults(settings, model)
        self.vocab: Vocab = model.vocab
        self.chat_template = model.meta("tokenizer.chat_template")
        draft = None
        if self.choice.needs_model and settings.model_draft:
            draft = Model(
                settings.model_draft, "draft", n_gpu_layers=settings.gpu_layers_draft, repack=repack, abort=self.abort
            )
            stack.callback(draft.close)
        self.target = Session(model, plans.target, self.abort)
        stack.callback(self.target.close)
        if settings.ctx_size and self.target.n_ctx != settings.ctx_size:
            self.say(f"context: {self.target.n_ctx} tokens (-c {settings.ctx_size}, rounded up)")
        room, longest = self.target.n_outputs - 1, self.choice.longest(settings)
        if 0 < room < longest:  # without any room, the answer's own line says so
            self.say(f"drafts are cut to {room} guesses: a batch has {self.target.n_batch} tokens (-b, -c)")
        draft_session = None
        if draft:
            draft_session = Session(draft, plans.draft, self.abort)
            stack.callback(draft_session.close)
        parts = Parts(draft_session, self.target.n_vocab, self.say)
        self.drafter = Chain(self.choice.drafters(settings, parts), self.choice.n_max)

    def generate(
        self, prompt: array[int], settings: Settings | None = None, emit: Callable[[str], None] = lambda text: None
    ) -> Answer:
        """Answer one prompt. An interruption (the abort byte) ends the text, it does not raise.

        Raises PromptError when the prompt does not fit the context.
        """
        settings = settings or self.settings
        if not prompt:
            raise UsageError("the prompt is empty: this model adds no token of its own to start from")
        if len(prompt) > self.target.n_ctx:
            raise PromptError(f"the prompt has {len(prompt)} tokens, the context {self.target.n_ctx} (-c/--ctx-size)")
        fixed = seed_of(settings)
        seed = secrets.randbelow(0xFFFFFFFF) if fixed is None else fixed
        parts: list[str] = []

        def take(text: str) -> None:
            parts.append(text)
            emit(text)

        sampler = Sampler(self.vocab, settings, seed, prompt)
        s = Sequence(
            0, prompt, sampler, self.vocab, n_predict=settings.predict, n_ctx=self.target.n_ctx,
            stops=settings.stop, special=settings.special, emit=take,
        )  # fmt: skip
        try:
            stats = self._run(s)
        finally:
            s.close()
        assert s.finish is not None
        return Answer("".join(parts), s.answer, s.finish, s.text.stop, seed, len(prompt), stats)

    def _run(self, s: Sequence) -> Stats:
        stats, start = Stats(), perf_counter()
        reused = self.target.graphs_reused
        try:
            if not s.finish:
                self.drafter.begin(s)
            while not s.finish:
                share_limits([s], self.target, self.drafter.n_max)
                (done,) = speculate(self.target, self.drafter, [s])
                if not stats.predicted_n:
                    stats.add_prompt(done, perf_counter() - start)
                    start = perf_counter()
                else:
                    stats.add(done)
                    stats.predicted_s = perf_counter() - start
                if self.abort.is_set:
                    raise Interrupted("interrupted")
        except Interrupted:
            s.end("interrupted")
            if not stats.predicted_n:
                stats.prompt_n, stats.prompt_s = len(self.target.held(s.id)), perf_counter() - start
        stats.graphs_reused = self.target.graphs_reused - reused
        return stats

    def why_nothing_drafted(self, stats: Stats) -> str:
        """The reason for an answer without a single guess, in a few words."""
        types = self.choice.types
        if not types:
            return "none, nothing was drafted"
        if not self.drafter.n_max:
            return "--spec-draft-n-max 0, nothing was drafted"
        if self.target.n_outputs < 2:
            return f"a batch of {self.target.n_batch} (-b) leaves no room for guesses"
        if stats.rounds < 1:
            return "the answer ended before the first draft"
        if types == ("ngram-simple",):
            least = self.settings.spec_ngram_simple_size_n + self.settings.spec_ngram_simple_size_m + 2
            if stats.cache_n + stats.prompt_n + stats.predicted_n <= least:
                return f"ngram-simple looks for repeats in texts of more than {least} tokens only"
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


def share_limits(live: Seq[Sequence], target: Session, n_max: int) -> None:
    """How many guesses each sequence may get now: the one place that bounds a draft.

    A sequence's first round is draft-free, as in llama.cpp. Later: the drafter's n_max, what is left
    of -n, the room in the context, and this sequence's share of the rows of one pass.
    """
    share = target.n_outputs // max(1, len(live)) - 1
    for s in live:
        left = n_max if s.remaining is None else s.remaining - 1
        s.limit = max(0, min(n_max, left, target.n_ctx - len(s.tokens), share)) if s.emitted else 0
