"""One text in the making: its tokens, its sampler, and what ends it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterator, Sequence as Seq
from contextlib import contextmanager
from typing import Any

from spec_cli.contracts import Row
from spec_cli.errors import BackendError, Interrupted, SpecError
from spec_cli.llama.logprobs import LogProbs
from spec_cli.llama.sampler import Sampler
from spec_cli.llama.vocab import Vocab
from spec_cli.text import TextStream
from spec_cli.tokens import Kind


class Sequence:
    """A prompt and the answer that grows behind it.

    id: its place in the memory, once it has one. types, n_max: who may guess, and the longest draft
    (None: each drafter's own). n_predict: most tokens to sample, negative for no bound. n_ctx: positions
    that the memory has; the last token may be sampled without one, as nothing is decoded after it. printed:
    control tokens that are text.
    """

    def __init__(
        self, prompt: array[int], sampler: Sampler, vocab: Vocab, *, seed: int, n_predict: int, n_ctx: int,
        types: tuple[str, ...] = (), n_max: int | None = None,
        stops: Seq[str] = (), special: bool = False, emit: Callable[[str], None] = lambda text: None,
        logprobs: LogProbs | None = None, mark: Callable[[Kind], None] = lambda kind: None,
        printed: Container[int] = (),
    ) -> None:  # fmt: skip
        self.id, self.tokens, self.n_prompt = -1, prompt[:], len(prompt)
        self.seed, self.types, self.n_max = seed, types, n_max
        self.limit = 0
        self.finish: str | None = None
        self.error: Exception | None = None
        """What failed in this text, and ended it: others in the same pass go on."""
        self.text = TextStream(stops, emit, mark)
        self._sampler, self._vocab, self._special, self._printed = sampler, vocab, special, printed
        self._n_ctx, self._logprobs = n_ctx, logprobs
        self._ends = array("q")  # for each answer token: bytes of text up to and with it
        self._n_predict = n_predict
        if n_predict == 0:
            self.end("length")

    @property
    def emitted(self) -> int:
        """Tokens sampled so far, an end token included."""
        return len(self.tokens) - self.n_prompt

    @property
    def remaining(self) -> int | None:
        """Tokens that may still be sampled; None without a bound."""
        return None if self._n_predict < 0 else self._n_predict - self.emitted

    @property
    def answer(self) -> array[int]:
        """The answer's tokens, up to where its text ends: nothing of a stop string, no unprinted end token."""
        kept = sum(1 for end in self._ends if end <= self.text.n_bytes)
        return self.tokens[self.n_prompt : self.n_prompt + kept]

    @property
    def logprobs(self) -> list[dict[str, Any]] | None:
        """An entry for each token of `answer`; None where nobody asked."""
        return None if self._logprobs is None else self._logprobs.entries[: len(self.answer)]

    def sample(self, row: Row) -> int | None:
        """The target's choice at this row; None where there is none, or the text has ended in `error`."""
        try:
            token = self._sampler.sample(row)  # type: ignore[arg-type]
            if self._logprobs and token is not None:
                self._logprobs.add(row, token)  # type: ignore[arg-type]
        except Interrupted:
            raise
        except BackendError as error:
            self.fail(BackendError(f"token {self.emitted + 1} (position {len(self.tokens) - 1}): {error}"))
            return None
        except Exception as error:
            self.fail(error)
            return None
        return token

    def push(self, token: int, kind: Kind = "plain") -> None:
        """Take a sampled token. A stop wins over the length on the same token."""
        self.tokens.append(token)
        try:
            self._take(token, kind)
        except Interrupted:
            raise
        except Exception as error:
            self.fail(error)

    def _take(self, token: int, kind: Kind) -> None:
        ended = self._vocab.is_end(token)
        if not ended or self._special:
            piece = self._vocab.piece(token, self._special or token in self._printed)
            self._ends.append(len(piece) + (self._ends[-1] if self._ends else 0))
            ended = self.text.feed(piece, kind) or ended
        if ended:
            self.end("stop")
        elif self.remaining == 0:
            self.end("length")
        elif len(self.tokens) > self._n_ctx:
            self.end("context")

    def end(self, reason: str) -> None:
        """End the text, once; held-back text is released."""
        if self.finish is None:
            self.finish = reason
            self.text.close()

    def fail(self, error: Exception) -> None:
        """End the text for an error, which is for whoever asked for the text to raise or to tell."""
        self.error = self.error or error
        self.finish = self.finish or "error"

    @contextmanager
    def owning(self) -> Iterator[None]:
        """What nobody foresaw here ends this text and no other."""
        try:
            yield
        except SpecError:
            raise
        except Exception as error:
            self.fail(error)

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()
