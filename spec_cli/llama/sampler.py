"""The target's own choice at a row: llama.cpp's sampler chain, in its order, with its defaults."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from spec_cli.errors import BackendError, UsageError
from spec_cli.llama.constraint import Constraint, candidates, selected
from spec_cli.llama.grammar import Grammar
from spec_cli.llama.log import C
from spec_cli.llama.rows import LogitRow
from spec_cli.llama.vocab import Vocab
from spec_cli.settings import Settings, read_bias

MOST_BREAKER = 40  # bytes of a DRY sequence breaker that count
COLDEST = 1e-6  # a lower temperature is greedy: dividing logits by it would overflow


@dataclass(frozen=True, slots=True)
class Step:
    """One sampler of the chain: when it does anything, how C makes it, whether it may move the argmax."""

    active: Callable[[Settings], bool]
    make: Callable[[Settings, Vocab, int], Any]
    moves_argmax: bool = False
    remembers: bool = False


def _dry(s: Settings, vocab: Vocab, seed: int) -> Any:
    breakers = [] if "none" in s.dry_sequence_breaker else [b.encode()[:MOST_BREAKER] for b in s.dry_sequence_breaker]
    for breaker in breakers:  # C tokenizes their ends
        try:
            vocab.require_spelling(breaker)
        except UsageError as error:
            origin = s.origins.get("dry_sequence_breaker", "--dry-sequence-breaker")
            raise UsageError(f"{origin}: {error}") from None
    texts = (ctypes.c_char_p * len(breakers))(*breakers)
    sizes = s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_penalty_last_n
    return C.llama_sampler_init_dry(vocab.handle, *sizes, texts, len(breakers))


# common/sampling.cpp, common_sampler_init: min_keep is 0. A new sampler is a row.
STEPS = {
    "penalties": Step(
        lambda s: (
            s.repeat_last_n > 0 and (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) != (1.0, 0.0, 0.0)
        ),
        lambda s, v, seed: C.llama_sampler_init_penalties(
            v.size, s.repeat_last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
        ),
        moves_argmax=True,
        remembers=True,
    ),
    "dry": Step(lambda s: s.dry_multiplier > 0 and s.dry_penalty_last_n > 0, _dry, moves_argmax=True, remembers=True),
    "top_n_sigma": Step(
        lambda s: s.top_n_sigma >= 0, lambda s, v, seed: C.llama_sampler_init_top_n_sigma(s.top_n_sigma)
    ),
    "top_k": Step(lambda s: s.top_k > 0, lambda s, v, seed: C.llama_sampler_init_top_k(s.top_k)),
    "typ_p": Step(  # keeps what is typical, which need not be the likeliest
        lambda s: s.typical < 1, lambda s, v, seed: C.llama_sampler_init_typical(s.typical, 0), moves_argmax=True
    ),
    "top_p": Step(lambda s: s.top_p < 1, lambda s, v, seed: C.llama_sampler_init_top_p(s.top_p, 0)),
    "min_p": Step(lambda s: s.min_p > 0, lambda s, v, seed: C.llama_sampler_init_min_p(s.min_p, 0)),
    "xtc": Step(
        lambda s: s.xtc_probability > 0 and s.xtc_threshold <= 0.5,
        lambda s, v, seed: C.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 0, seed),
        moves_argmax=True,
    ),
    "temperature": Step(
        lambda s: True,
        lambda s, v, seed: C.llama_sampler_init_temp_ext(_temp(s), s.dynatemp_range, s.dynatemp_exp),
    ),
}


def _temp(s: Settings) -> float:
    return s.temp if s.temp >= COLDEST else 0


def _biases(s: Settings, vocab: Vocab) -> list[tuple[int, float]]:
    """Tokens whose logits are changed before all else: the person's, then what may never come."""
    never = [*(vocab.ends if s.ignore_eos else ()), *vocab.suppressed]
    return [read_bias(text) for text in s.logit_bias] + [(token, -math.inf) for token in never]


def require_known_tokens(s: Settings, vocab: Vocab) -> None:
    """Raises UsageError for a bias on a token that the model does not have."""
    for text in s.logit_bias:
        if read_bias(text)[0] >= vocab.size:
            where = s.origins.get("logit_bias", "-l/--logit-bias")
            raise UsageError(f"{where}: {text}: the model has the tokens 0 to {vocab.size - 1}")


def _parts(s: Settings, vocab: Vocab, seed: int) -> tuple[list[Any], bool, bool]:
    """The samplers of a chain as C makes them, whether the argmax is the answer, whether the prompt matters."""
    biases = _biases(s, vocab)
    parts, steps = [], [STEPS[name] for name in s.sampler_seq or s.samplers if name != "adaptive_p"]
    if biases:
        array = (C.llama_logit_bias * len(biases))(*biases)
        parts.append(C.llama_sampler_init_logit_bias(vocab.size, len(biases), array))
    if s.mirostat:
        parts.append(C.llama_sampler_init_temp(_temp(s)))
        sizes = s.mirostat_ent, s.mirostat_lr
        if s.mirostat == 1:
            parts.append(C.llama_sampler_init_mirostat(vocab.size, seed, *sizes, 100))
        else:
            parts.append(C.llama_sampler_init_mirostat_v2(seed, *sizes))
        return parts, False, False
    steps = [step for step in steps if step.active(s)]
    parts += [step.make(s, vocab, seed) for step in steps]
    adaptive = "adaptive_p" in (s.sampler_seq or s.samplers)
    if adaptive:
        parts.append(C.llama_sampler_init_adaptive_p(s.adaptive_target, s.adaptive_decay, seed))
    else:
        parts.append(C.llama_sampler_init_dist(seed))
    greedy = _temp(s) == 0 and not s.dynatemp_range and STEPS["temperature"] in steps
    greedy = greedy and not (biases or adaptive or any(step.moves_argmax for step in steps))
    return parts, greedy, adaptive or any(step.remembers for step in steps)


def constraint(s: Settings, vocab: Vocab) -> Constraint | None:
    """What the settings demand of an answer. Raises UsageError for what cannot be read or enforced."""
    if s.json_schema is not None:
        from spec_cli.llama.schema import JsonSchema  # llguidance is loaded only where it is used

        return JsonSchema(vocab, s.json_schema, _schema_origin(s))
    if s.grammar is not None:
        return Grammar(vocab, s.grammar, s.origins.get("grammar", "--grammar"))
    return None


def check_constraint(s: Settings, vocab: Vocab) -> None:
    """Raises UsageError as `constraint` does, before llguidance has looked at a large vocabulary."""
    if s.json_schema is not None:
        from spec_cli.llama.schema import compiled

        compiled(s.json_schema, _schema_origin(s))
    elif demand := constraint(s, vocab):
        demand.close()


def _schema_origin(s: Settings) -> str:
    return s.origins.get("json_schema", "-j/--json-schema")


class Sampler:
    """One sequence's chain and random state. One draw for each token that becomes text."""

    def __init__(self, vocab: Vocab, settings: Settings, seed: int, prompt: Iterable[int] = ()) -> None:
        self._constraint = constraint(settings, vocab)
        parts, self._greedy, remembers = _parts(settings, vocab, ctypes.c_uint32(seed).value)
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        for part in parts:
            C.llama_sampler_chain_add(self._chain, part)
        if remembers:  # penalties see the prompt
            for token in prompt:
                C.llama_sampler_accept(self._chain, token)

    def sample(self, row: LogitRow) -> int | None:
        """The token at this row, or None when the grammar allows nothing there.

        Raises BackendError for a row of the model without a finite maximum: C would sort NaNs.
        """
        logits = row.logits
        best = int(logits.argmax())  # a NaN wins every argmax, so one look finds it
        if not math.isfinite(logits[best]):
            raise BackendError("the model gives no finite logits: --check-tensors looks for damaged weights")
        if self._constraint:
            return self._constrained(self._constraint, row, best)
        return best if self._greedy else row.sample(self._chain)

    def _constrained(self, allowed: Constraint, row: LogitRow, best: int) -> int | None:
        """common/sampling.cpp, common_sampler_sample: choose, and only if that is not allowed, among what is."""
        chain = None if self._greedy else self._chain
        token = best if chain is None else selected(chain, candidates(row.logits))
        if token is None or not allowed.allows(token):
            token = allowed.choose(row, chain)
        if token is not None:
            allowed.accept(token)
            C.llama_sampler_accept(self._chain, token)
        return token

    def close(self) -> None:
        """Free the chain and its samplers, once."""
        if self._constraint:
            self._constraint.close()
        chain, self._chain = self._chain, None
        if chain:
            C.llama_sampler_free(chain)
