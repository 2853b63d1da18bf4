"""How likely the model itself found each token: before samplers, grammars and temperature."""

from __future__ import annotations

from typing import Any

import numpy as np

from spec_cli.llama.rows import LogitRow
from spec_cli.llama.vocab import Vocab


class LogProbs:
    """The natural logarithm of the softmax of the target's logits, for each token sampled and the k likeliest."""

    def __init__(self, vocab: Vocab, k: int) -> None:
        self._vocab, self._k = vocab, min(k, vocab.size)
        self.entries: list[dict[str, Any]] = []

    def add(self, row: LogitRow, token: int) -> None:
        """The token that was sampled at this row."""
        logits = row.logits.astype(np.float64)
        best = logits.max()
        log_sum = best + np.log(np.exp(logits - best).sum())
        top = np.argpartition(-logits, self._k - 1)[: self._k] if self._k else np.empty(0, np.int64)
        top = top[np.lexsort((top, -logits[top]))]
        entry = self._entry(token, logits[token] - log_sum)
        self.entries.append({**entry, "top_logprobs": [self._entry(int(i), logits[i] - log_sum) for i in top]})

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._vocab.piece(token, special=True).decode("utf-8", "replace")
        return {"id": token, "token": text, "logprob": round(float(logprob), 6) if np.isfinite(logprob) else None}
