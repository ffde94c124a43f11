"""Drafting behind drafted tokens: the batch of a text that is not committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from specdec.interfaces import Draws, NoiseKeys, ProposeBatch, TokenIds


def batch_behind(batch: ProposeBatch, paths: Sequence[Sequence[int]]) -> ProposeBatch:
    """Return a batch in which the drafted tokens `paths [B]` are committed ones.

    The next batch of the same requests begins below what this one delivers, so that the proposer forgets them.
    """
    texts: list[TokenIds] = []
    new: list[TokenIds] = []
    first = 0
    for row, (path, count) in enumerate(zip(paths, batch.counts, strict=True)):
        drafted = np.array(path, np.int32)
        texts.append(np.concatenate((batch.token_ids(row), drafted)) if len(path) else batch.token_ids(row))
        new += [batch.new_token_ids[first : first + count], drafted]
        first += count
    lengths = list(map(len, paths))
    table, lines = batch.table, batch.lines
    if table is not None:
        table, lines = table.of_lines(lines, max(batch.num_tokens), max(lengths)), range(len(lengths))
        table.write(lines, batch.num_tokens, [np.array(path, np.int32) for path in paths])
    return replace(
        batch,
        num_tokens=[a + b for a, b in zip(batch.num_tokens, lengths, strict=True)],
        counts=[a + b for a, b in zip(batch.counts, lengths, strict=True)],
        new_token_ids=np.concatenate(new),
        last_num_drafted=[0] * len(lengths),
        last_num_accepted=[0] * len(lengths),
        draws=_DrawsBehind(batch.draws, lengths),
        token_ids_of=texts.__getitem__,
        allowed_after=_allowed_behind(batch, paths),
        top_k=None,
        table=table,
        lines=lines,
    )


class _DrawsBehind:
    """The noise of the positions behind drafted tokens.

    Args:
        draws: the noise behind the committed tokens.
        lengths: `[B]` number of drafted tokens.
    """

    def __init__(self, draws: Draws, lengths: Sequence[int]) -> None:
        self._draws, self._lengths = draws, lengths

    def sample(
        self, logits: torch.Tensor, rows: Sequence[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw one token per row."""
        drawn = [
            self._draws.sample(logits[i : i + 1], [row], node + self._lengths[row])
            for i, row in enumerate(rows)
        ]
        return torch.cat([tokens for tokens, _ in drawn]), torch.cat([probs for _, probs in drawn])

    def coupled(self, logits: torch.Tensor, rows: Sequence[int], depth: int) -> torch.Tensor:
        """Choose one token per row with the noise of `strict`."""
        return torch.cat(
            [
                self._draws.coupled(logits[i : i + 1], [row], depth + self._lengths[row])
                for i, row in enumerate(rows)
            ]
        )

    def coupled_noise(self, rows: Sequence[int], depth: int, num_ids: int) -> torch.Tensor:
        """Return the noise of `strict`."""
        return torch.cat(
            [self._draws.coupled_noise([row], depth + self._lengths[row], num_ids) for row in rows]
        )

    def coupled_keys(self, rows: Sequence[int]) -> NoiseKeys:
        """Return the keys of the noise of `strict`."""
        keys = self._draws.coupled_keys(rows)
        return replace(keys, positions=keys.positions + np.array([self._lengths[row] for row in rows]))


def _allowed_behind(
    batch: ProposeBatch, paths: Sequence[Sequence[int]]
) -> Callable[[int, Sequence[int]], torch.Tensor | None] | None:
    if batch.allowed_after is None:
        return None
    return lambda row, path: batch.allowed(row, [*paths[row], *path])
