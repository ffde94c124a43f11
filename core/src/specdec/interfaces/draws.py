"""The noise source for proposers that sample their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True)
class NoiseKeys:
    """Keys of the noise of `strict` for some rows of a batch; for loops that choose many tokens per call."""

    seeds: npt.NDArray[np.int64]
    """`[R]` request seeds."""
    samples: npt.NDArray[np.int64]
    """`[R]` sample indices."""
    positions: npt.NDArray[np.int64]
    """`[R]` position of the next token."""


class Draws(Protocol):
    """Stateless noise, keyed so that every draw is unique and independent of batch and order."""

    def sample(
        self, logits: torch.Tensor, rows: Sequence[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw one token per row; the q returned is the exact distribution the token was drawn from.

        Args:
            logits: `[R, V']` draft logits after the draft's own temperature, top-k, top-p and min-p.
            rows: `[R]` row of the batch that each logits row belongs to.
            node: index that the drawn node will have in its row of the draft.

        Returns:
            tokens `[R]` int64 and q `[R, V']`.
        """

    def coupled(self, logits: torch.Tensor, rows: Sequence[int], depth: int) -> torch.Tensor:
        """Choose one token per row with the noise that `strict` will use for that position; returns `[R]` int64.

        Args:
            logits: `[R, V]` draft logits over the target's ids.
            rows: `[R]` row of the batch that each logits row belongs to.
            depth: depth of the drafted node; 1 for the first one.
        """

    def coupled_noise(self, rows: Sequence[int], depth: int, num_ids: int) -> torch.Tensor:
        """Return the noise itself: `[R, num_ids]` float32 Gumbel noise g, so that `coupled` is `argmax(log p + g)`.

        Args:
            rows: `[R]` rows of the batch.
            depth: depth of the drafted node; 1 for the first one.
            num_ids: number of ids, from 0 on.
        """

    def coupled_keys(self, rows: Sequence[int]) -> NoiseKeys:
        """Return the keys of `coupled` at depth 1 for some rows; each further depth is one position more."""
