"""Batches of conversations of similar length; batch n depends only on the seed and n."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_train.answers.record import Answered

_POOL = 32
"""Number of batches whose conversations are sorted by length together."""


class Conversations:
    """Batches with one conversation per row, as many rows as the token limit allows.

    Args:
        answered: the conversations; those without a long enough answer within the window are skipped.
        window: maximum number of tokens used of a conversation.
        tokens_per_batch: tokens of a batch, padding included.
        margin: padding positions after the longest row, for guesses further ahead.
        filler: padding token id.
        seed: seed of the shuffles.

    Raises:
        ValueError: if no conversation is left.
    """

    def __init__(
        self,
        answered: Sequence[Answered],
        *,
        window: int,
        tokens_per_batch: int,
        margin: int,
        filler: int,
        seed: int,
    ) -> None:
        self._answered = [one for one in answered if one.num_learnt(window) > 0]
        if not self._answered:
            raise ValueError(
                f"none of {len(answered)} conversations has an answer within {window} tokens: give more prompts, or a larger "
                "--seq-len"
            )
        self._window, self._margin, self._filler, self._seed = window, margin, filler, seed
        self._tokens_per_batch = tokens_per_batch
        self.num_tokens = sum(min(len(one.ids), window) for one in self._answered)
        self._epochs: list[list[list[int]]] = []

    def batch(self, index: int) -> Tensor:
        """Return batch `index` of the endless stream of epochs, `[B, 2, W]`: token ids and answer mask."""
        epoch = 0
        while index >= len(self._batches(epoch)):
            index -= len(self._batches(epoch))
            epoch += 1
        chosen = [self._answered[i] for i in self._batches(epoch)[index]]
        return padded(chosen, self._window, self._margin, self._filler)

    def _batches(self, epoch: int) -> list[list[int]]:
        """Return the conversation indices of each batch of an epoch."""
        while len(self._epochs) <= epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + len(self._epochs))
            order = torch.randperm(len(self._answered), generator=generator).tolist()
            batches: list[list[int]] = []
            for pool in self._pools(order):
                batches += self._cut(sorted(pool, key=self._length))
            shuffled = torch.randperm(len(batches), generator=generator).tolist()
            self._epochs.append([batches[i] for i in shuffled])
        return self._epochs[epoch]

    def _pools(self, order: Sequence[int]) -> list[Sequence[int]]:
        mean = max(1, self.num_tokens // len(self._answered))
        size = max(1, _POOL * self._tokens_per_batch // mean)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _cut(self, ascending: Sequence[int]) -> list[list[int]]:
        """Split conversations in ascending order of length into batches."""
        batches: list[list[int]] = [[]]
        for index in ascending:
            size = (len(batches[-1]) + 1) * (self._length(index) + self._margin)
            if batches[-1] and size > self._tokens_per_batch:
                batches.append([])
            batches[-1].append(index)
        return batches

    def _length(self, index: int) -> int:
        return min(len(self._answered[index].ids), self._window)


def padded(answered: Sequence[Answered], window: int, margin: int, filler: int) -> Tensor:
    """Return conversations as rows `[B, 2, W]`: token ids, and 1 for answer tokens."""
    width = max(min(len(one.ids), window) for one in answered) + margin
    rows = torch.zeros(len(answered), 2, width, dtype=torch.int64)
    rows[:, 0] = filler
    for row, one in zip(rows, answered, strict=True):
        ids = torch.tensor(one.ids[:window])
        row[0, : len(ids)] = ids
        row[1, one.num_prompt : len(ids)] = 1
    return rows
