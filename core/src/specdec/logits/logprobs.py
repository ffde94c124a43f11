"""Log probabilities of the tokens of one sample, under the target's unmodified distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.sent import sent_together
from specdec.outputs import Logprob

_ROWS_AT_ONCE = 64
_FEW = 64
"""Most log probabilities of a token that are listed together with those of other requests."""


class TokenText(Protocol):
    """The text so far, which decides what a token adds to it."""

    def spelled(self, token_id: int) -> tuple[str, bytes]:
        """Return the text that a token would add, and its own bytes."""

    def push(self, token_id: int) -> str:
        """Add a token."""


Listing = tuple[float, int, list[int], list[float]]
"""Of a row: log probability and rank of its token; ids and log probabilities of the most probable tokens."""


def listings(
    logits: torch.Tensor, rows: Sequence[int], token_ids: Sequence[int], count: int
) -> list[Listing]:
    """List log probabilities, read from the device by one transfer for many rows.

    Args:
        logits: `[R, V]`.
        rows: `[N]` of `logits`.
        token_ids: `[N]` the token of each row.
        count: number of most probable tokens to list; at most V are.
    """
    found: list[Listing] = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        index, ids = sent_together([np.array(rows[part]), np.array(token_ids[part])], logits.device)
        found += read_listings(list_logprobs(logits[index], ids, count).cpu().numpy())
    return found


def list_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, count: int) -> torch.Tensor:
    """Return what `read_listings` makes lists of, without leaving the device.

    Args:
        logits: `[N, V]`.
        token_ids: `[N]` the token of each row.
        count: number of most probable tokens to list; at most V are.

    Returns:
        `[N, 2 + 2 * count]` float64, which holds ids exactly.
    """
    logprobs = torch.log_softmax(logits.float(), -1)
    chosen = logprobs.gather(-1, token_ids[:, None])
    ranks = (logprobs > chosen).sum(-1, keepdim=True) + 1
    top = logprobs.topk(min(count, logits.shape[-1]), -1)
    return torch.cat((chosen.double(), ranks, top.values, top.indices), 1)


def read_listings(numbers: npt.NDArray[np.float64]) -> list[Listing]:
    """Return the listings that `list_logprobs` packed."""
    own, values, best = np.split(numbers, (2, 1 + numbers.shape[1] // 2), 1)
    ranks, ids = own[:, 1].astype(int).tolist(), best.astype(int).tolist()
    return list(zip(own[:, 0].tolist(), ranks, ids, values.tolist(), strict=True))


class LogprobRecord:
    """Collects `logprobs` or `prompt_logprobs` of one sample.

    They are of the target's own distribution, before temperature and every other sampling parameter, like vLLM's
    `raw_logprobs`.

    Args:
        num_top: number of most probable tokens to list besides the token at that position; -1 for all.
        text: the text before the first token that is recorded; None without a tokenizer.
    """

    needs_logits: ClassVar[bool] = False
    """Whether `add` must be called, with logits; else `take` will do."""

    def __init__(self, num_top: int, text: TokenText | None) -> None:
        self.num_top = num_top
        self._text = text
        self.entries: list[dict[int, Logprob]] = []
        """For each position, by id: the token at that position first, then the most probable ones."""
        self.cumulative = 0.0
        """Sum of the log probabilities of the tokens at those positions."""

    @property
    def num_few(self) -> int:
        """`num_top` if these are few enough to be listed together with those of other requests, else -1."""
        return -1 if self.needs_logits or self.num_top > _FEW else self.num_top

    def add(self, logits: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Record tokens.

        Args:
            logits: `[N, V]` the target's rows from which the tokens were chosen.
            token_ids: `[N]`.
        """
        count = logits.shape[-1] if self.num_top < 0 else self.num_top
        self.take(token_ids, listings(logits, range(len(token_ids)), token_ids, count))

    def take(self, token_ids: Sequence[int], rows: Sequence[Listing]) -> None:
        """Record tokens `[N]` with what was listed of their rows, as many most probable tokens as wanted or more."""
        for token_id, (logprob, rank, top_ids, top_logprobs) in zip(token_ids, rows, strict=True):
            entry = {token_id: self._logprob(token_id, logprob, rank)}
            count = len(top_ids) if self.num_top < 0 else self.num_top
            for index, (other, value) in enumerate(
                zip(top_ids[:count], top_logprobs[:count], strict=True), 1
            ):
                if other != token_id:
                    entry[other] = self._logprob(other, value, index)
            self.entries.append(entry)
            self.cumulative += logprob
            if self._text is not None:
                self._text.push(token_id)

    def _logprob(self, token_id: int, logprob: float, rank: int) -> Logprob:
        if self._text is None:
            return Logprob(logprob, rank)
        return Logprob(logprob, rank, *self._text.spelled(token_id))
