"""A noise source that records the draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from specdec.interfaces import Draws, NoiseKeys


class RecordingDraws:
    """Forwards and records every draw of one call of `propose`.

    Args:
        draws: the engine's draws.
    """

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self.sampled: Counter[tuple[int, int]] = Counter()
        """Number of draws per row and node."""

    def sample(
        self, logits: torch.Tensor, rows: Sequence[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw as the engine does."""
        self.sampled.update((int(row), int(node)) for row in rows)
        return self._draws.sample(logits, rows, node)

    def coupled(self, logits: torch.Tensor, rows: Sequence[int], depth: int) -> torch.Tensor:
        """Choose as the engine does."""
        return self._draws.coupled(logits, rows, depth)

    def coupled_noise(self, rows: Sequence[int], depth: int, num_ids: int) -> torch.Tensor:
        """Return the engine's noise."""
        return self._draws.coupled_noise(rows, depth, num_ids)

    def coupled_keys(self, rows: Sequence[int]) -> NoiseKeys:
        """Return the engine's keys."""
        return self._draws.coupled_keys(rows)
