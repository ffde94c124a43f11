"""The noise source of proposers."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np
import torch

from specdec.engine.sequence import Sequence
from specdec.interfaces.draws import NoiseKeys
from specdec.noise import Stream, node_word, row_operations


class EngineDraws:
    """Draws keyed by each request's seed; see `specdec.interfaces.Draws`.

    Args:
        sequences: the rows of the batch; they are not kept.
        device: device of the noise.
    """

    def __init__(
        self,
        sequences: list[Sequence],
        device: torch.device = torch.device("cpu"),  # noqa: B008  a constant
    ) -> None:
        self._keys = [(s.seed, s.sample_index, s.num_tokens) for s in sequences]
        self._device = device

    def sample(self, logits: torch.Tensor, rows: Rows[int], node: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw one token per row from the draft noise stream; returns tokens `[R]` and q `[R, V']`."""
        probs = torch.softmax(logits.float(), -1)
        return self._race(probs, rows, node_word(Stream.DRAFT, node), 0), probs

    def coupled(self, logits: torch.Tensor, rows: Rows[int], depth: int) -> torch.Tensor:
        """Choose one token per row with the noise that `strict` uses at that position; returns `[R]`."""
        probs = torch.softmax(logits.float(), -1)
        return self._race(probs, rows, node_word(Stream.TARGET), depth - 1)

    def coupled_noise(self, rows: Rows[int], depth: int, num_ids: int) -> torch.Tensor:
        """Return the Gumbel noise `[R, num_ids]` that `strict` uses at that position."""
        keys = self.coupled_keys(rows)
        operations = row_operations(self._device)
        positions = keys.positions + depth - 1
        return operations.gumbel(keys.seeds, positions, keys.samples, node_word(Stream.TARGET), num_ids)

    def coupled_keys(self, rows: Rows[int]) -> NoiseKeys:
        """Return seeds, sample indices and next positions of rows."""
        table = np.array([self._keys[row] for row in rows], np.int64)
        return NoiseKeys(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    def _race(self, probs: torch.Tensor, rows: Rows[int], word: int, offset: int) -> torch.Tensor:
        keys = self.coupled_keys(rows)
        words = torch.full((len(rows),), word, device=probs.device)
        return row_operations(probs.device).race(
            probs, keys.seeds, keys.positions + offset, keys.samples, words
        )
