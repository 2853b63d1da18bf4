"""Many texts through one pair of models: begun as others end, read in pieces, continued in shared passes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence as Seq
from dataclasses import dataclass, field
from time import perf_counter

from spec_cli.contracts import Pass
from spec_cli.drafters.chain import Chain
from spec_cli.errors import SpecError
from spec_cli.llama.session import Session
from spec_cli.sequence import Sequence
from spec_cli.speculate import speculate
from spec_cli.stats import Passes, Stats
from spec_cli.tokens import common_prefix, tokens

SHORTEST_SHARED = 16  # tokens of a common beginning that are worth a pass of their own


@dataclass(eq=False, slots=True)
class Job:
    """A text on its way from its prompt to its end."""

    s: Sequence
    stats: Stats = field(default_factory=Stats)
    shared: int | None = None
    """How much of its prompt is read for others too, once that is known."""
    since: float = 0.0
    """When its reading began; from the first token on, when that came."""


@dataclass(slots=True)
class _Text:
    """A prompt, or what several begin with, and its place in the memory."""

    id: int
    tokens: array[int]
    types: tuple[str, ...]


class Scheduler:
    """Runs up to `n_rows` jobs at a time; each round is one pass for all of them.

    What nobody foresaw ends the one job that it concerns (`Sequence.error`); a SpecError ends a step.

    spare: a place in the memory where a common beginning stays. Models that can drop a suffix do
    without: there a text lends its beginning while it goes on.
    """

    def __init__(self, target: Session, drafter: Chain, n_rows: int, spare: int | None = None) -> None:
        self.target, self.drafter = target, drafter
        self._n_rows, self._spare, self._beginning = n_rows, spare, tokens()
        self.passes = Passes()
        self._clear()

    def _clear(self) -> None:
        self._free = list(range(self._n_rows))
        self._waiting: list[Job] = []
        self._reading: list[Job] = []
        self._running: list[Job] = []

    @property
    def n_running(self) -> int:
        """Jobs that are being read or continued."""
        return len(self._reading) + len(self._running)

    @property
    def wants_more(self) -> bool:
        """Whether a job could begin; one more is good to know of, as prompts may begin alike."""
        return len(self._waiting) <= len(self._free)

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done."""
        return not (self._waiting or self.n_running)

    def add(self, job: Job) -> None:
        """Run this job as soon as there is a place."""
        self._waiting.append(job)

    def withdraw(self) -> list[Job]:
        """Take back the jobs that have not begun."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.s.close()
        return waiting

    def step(self) -> list[Job]:
        """Read a piece of the prompts that wait, then one round for the rest. Returns the jobs that ended."""
        self._admit()
        self._read()
        self._round()
        ended = [job for job in self._running if job.s.finish]
        self._running = [job for job in self._running if not job.s.finish]
        for job in ended:
            self._free.append(job.s.id)
            job.s.close()
        return ended

    def drop(self) -> None:
        """Forget all jobs. What the memory holds stays."""
        for job in (*self._waiting, *self._reading, *self._running):
            job.s.close()
        self._clear()

    def _admit(self) -> None:
        """Each job that waits gets the free place that holds most of its prompt."""
        while self._waiting and self._free:
            job = self._waiting.pop(0)
            job.s.id = max(self._free, key=lambda place: common_prefix(self.target.memory.held(place), job.s.tokens))
            self._free.remove(job.s.id)
            job.since = perf_counter()
            if not job.s.finish:
                with job.s.owning():
                    self.drafter.begin(job.s)
            (self._running if job.s.finish else self._reading).append(job)

    def _read(self) -> None:
        """At most one ubatch of prompts, so that those who run need not wait for long.

        A prompt whose rest fits joins the round, which reads it.
        """
        room, joining = self.target.n_ubatch, 0
        for job in self._reading:
            with job.s.owning():
                rest = self._read_ahead(job, room, joining)
                if rest is None:
                    break
                room -= rest
            joining += 1
        joined, self._reading = self._reading[:joining], self._reading[joining:]
        self._running += joined
        self._together([job for job in joined if not job.s.finish], self._read_along)

    def _read_ahead(self, job: Job, room: int, joining: int) -> int | None:
        """How many tokens of this prompt are left for the round; None if that is too many, or others wait for them.

        Then a piece of it is read, unless some join the round: they may still have to take over what it would
        overwrite.
        """
        prompt = job.s.tokens
        if job.shared is None:
            job.shared = self._shared_beginning(job)
        reach = self.target.reach(job.s.id, prompt)
        if job.stats.prompt_n >= job.shared > reach:  # it was read, and had to make room: each for itself
            job.shared = 0
        beginning = job.shared > reach  # read once for all: the others wait for it
        if not beginning and len(prompt) - reach <= room:
            return len(prompt) - reach
        if not joining:
            place = self._spare if beginning and self._spare is not None else job.s.id
            self._read_piece(job, _Text(place, prompt[: job.shared if beginning else None], job.s.types), room)
        return None

    def _read_along(self, joined: Seq[Job]) -> None:
        self.drafter.read([job.s for job in joined], [len(job.s.tokens) for job in joined])

    def _together(self, jobs: Seq[Job], do: Callable[[Seq[Job]], None]) -> None:
        """Do one thing for several jobs; if that fails, for each alone, which shows whose fault it is."""
        try:
            if jobs:
                do(jobs)
        except SpecError:
            raise
        except Exception:
            for job in jobs:
                if not job.s.finish:
                    with job.s.owning():
                        do([job])

    def _read_piece(self, job: Job, text: _Text, room: int) -> None:
        """Decode up to `room` more tokens of a text, on this job's account."""
        end = min(len(text.tokens), self.target.reach(text.id, text.tokens) + room)
        (rows,) = self.target.forward([Pass(text.id, text.tokens[:end], end, 0)])
        job.stats.prompt_n += rows.decoded
        self.drafter.read([text], [end])

    def _shared_beginning(self, job: Job) -> int:
        """How much of this prompt others have too, and can take over once it is read."""
        prompt, known, memory = job.s.tokens, self._beginning, self.target.memory
        if not memory.can_share or (self._spare is not None and memory.free_cells < len(prompt)):
            return 0
        kept = len(known) if known and len(known) < len(prompt) and prompt[: len(known)] == known else 0
        others = [other.s.tokens for other in (*self._reading, *self._waiting) if other is not job]
        # not to their last token: each needs a row of its own
        lengths = [min(common_prefix(prompt, other), len(prompt) - 1, len(other) - 1) for other in others]
        shared = min((n for n in lengths if n >= SHORTEST_SHARED), default=0)
        if shared < kept + max(kept // 2, SHORTEST_SHARED):  # a few more tokens may be chance: all know the old one
            return kept
        if self._spare is not None:
            self._beginning = prompt[:shared]
        return shared

    def _round(self) -> None:
        """One round for every text that is being continued."""
        live = [job for job in self._running if not job.s.finish]
        self._share_limits([job.s for job in live])
        self._together(live, self._pass)

    def _pass(self, live: Seq[Job]) -> None:
        rounds = speculate(self.target, self.drafter, [job.s for job in live])
        now = perf_counter()
        for job, done in zip(live, rounds, strict=True):
            self.target.settle(job.s.id, job.s.tokens)
            if job.stats.predicted_n:
                job.stats.add(done)
                job.stats.predicted_s = now - job.since
            else:
                job.stats.add_prompt(done, job.s.n_prompt, now - job.since)
                job.since = now
        self.passes.add(len(live), rounds[0].draft_s, rounds[0].target_s)

    def _share_limits(self, live: Seq[Sequence]) -> None:
        """How many guesses each sequence may get now: the one place that bounds a draft.

        A sequence's first round is draft-free, as in llama.cpp. Later: the n_max that was asked for,
        what is left of -n, the room in the context, and a row's share of a pass, whoever else runs.
        """
        share = self.target.n_outputs // self._n_rows - 1
        for s in live:
            most = [share, self.target.n_ctx - len(s.tokens)]
            most += [] if s.n_max is None else [s.n_max]
            most += [] if s.remaining is None else [s.remaining - 1]
            s.limit = max(0, min(most)) if s.emitted else 0
