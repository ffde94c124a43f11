"""Log probabilities of the tokens of one sample, under the target's unmodified distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdec.outputs import Logprob

_ROWS_AT_ONCE = 64


class TokenText(Protocol):
    """The text so far, which decides what a token adds to it."""

    def spelled(self, token_id: int) -> tuple[str, bytes]:
        """Return the text that a token would add, and its own bytes."""

    def push(self, token_id: int) -> str:
        """Add a token."""


class LogprobRecord:
    """Collects `logprobs` or `prompt_logprobs` of one sample.

    They are of the target's own distribution, before temperature and every other sampling parameter, like vLLM's
    `raw_logprobs`.

    Args:
        num_top: number of most probable tokens to list besides the token at that position; -1 for all.
        text: the text before the first token that is recorded; None without a tokenizer.
    """

    def __init__(self, num_top: int, text: TokenText | None) -> None:
        self._num_top = num_top
        self._text = text
        self.entries: list[dict[int, Logprob]] = []
        """For each position, by id: the token at that position first, then the most probable ones."""
        self.cumulative = 0.0
        """Sum of the log probabilities of the tokens at those positions."""

    def add(self, logits: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Record tokens.

        Args:
            logits: `[N, V]` the target's rows from which the tokens were chosen.
            token_ids: `[N]`.
        """
        for start in range(0, len(token_ids), _ROWS_AT_ONCE):
            self._add(logits[start : start + _ROWS_AT_ONCE], token_ids[start : start + _ROWS_AT_ONCE])

    def _add(self, logits: torch.Tensor, token_ids: Sequence[int]) -> None:
        logprobs = torch.log_softmax(logits.float(), -1)
        ids = torch.tensor(token_ids, device=logits.device)[:, None]
        chosen = logprobs.gather(-1, ids)
        ranks = (logprobs > chosen).sum(-1) + 1
        count = logprobs.shape[-1] if self._num_top < 0 else min(self._num_top, logprobs.shape[-1])
        top = logprobs.topk(count, -1)
        rows = zip(
            token_ids, chosen[:, 0].tolist(), ranks.tolist(), top.indices.tolist(), top.values.tolist(),
            strict=True,
        )  # fmt: skip
        for token_id, logprob, rank, top_ids, top_logprobs in rows:
            entry = {token_id: self._logprob(token_id, logprob, rank)}
            for place, (other, value) in enumerate(zip(top_ids, top_logprobs, strict=True), 1):
                if other != token_id:
                    entry[other] = self._logprob(other, value, place)
            self.entries.append(entry)
            self.cumulative += logprob
            if self._text is not None:
                self._text.push(token_id)

    def _logprob(self, token_id: int, logprob: float, rank: int) -> Logprob:
        if self._text is None:
            return Logprob(logprob, rank)
        return Logprob(logprob, rank, *self._text.spelled(token_id))
