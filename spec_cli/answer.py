"""What one prompt gave, and the object that tells it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from spec_cli.report import as_json
from spec_cli.scheduler import Job
from spec_cli.stats import Stats


@dataclass(frozen=True)
class Answer:
    """What one prompt gave. types, n_max: who might guess for it, and how far at most."""

    text: str
    tokens: array[int]
    finish_reason: str
    stop: str | None
    seed: int
    n_prompt: int
    types: tuple[str, ...]
    n_max: int | None
    stats: Stats
    logprobs: list[dict[str, Any]] | None = None

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints; a row of `batch`."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            "stop": self.stop,
            "seed": self.seed,
            "prompt_tokens": self.n_prompt,
            **({} if self.logprobs is None else {"logprobs": self.logprobs}),
            **as_json(self.stats, self.types or ("none",), self.n_max),
        }


def answer_of(job: Job) -> Answer:
    """The answer of a job that has ended."""
    s = job.s
    assert s.finish is not None
    return Answer(
        s.text.whole, s.answer, s.finish, s.text.stop, s.seed, s.n_prompt, s.types, s.n_max, job.stats, s.logprobs,
    )  # fmt: skip
