"""The noise source of proposers."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np
import torch

from specdec.engine.sequence import Sequence
from specdec.interfaces.draws import NoiseKeys
from specdec.noise import Stream, exponentials, node_word
from specdec.noise.host import gumbel_rows, race


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
        positions, word = keys.positions + depth - 1, node_word(Stream.TARGET)
        if self._device.type == "cpu":
            return torch.from_numpy(gumbel_rows(keys.seeds, positions, keys.samples, word, num_ids))
        seeds, places, samples = (
            torch.from_numpy(part).to(self._device) for part in (keys.seeds, positions, keys.samples)
        )
        return -exponentials(seeds, places, samples, torch.full_like(seeds, word), num_ids).log().float()

    def coupled_keys(self, rows: Rows[int]) -> NoiseKeys:
        """Return seeds, sample indices and next positions of rows."""
        table = np.array([self._keys[row] for row in rows], np.int64)
        return NoiseKeys(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    def _race(self, probs: torch.Tensor, rows: Rows[int], word: int, offset: int) -> torch.Tensor:
        keys = [
            (seed, sample, num_tokens + offset) for seed, sample, num_tokens in (self._keys[r] for r in rows)
        ]
        if probs.device.type == "cpu":
            host = probs.numpy()
            return torch.tensor(
                [
                    race(host[r], seed, position, sample, word)
                    for r, (seed, sample, position) in enumerate(keys)
                ]
            )
        seeds, samples, positions = torch.tensor(keys, device=probs.device).unbind(-1)
        noise = exponentials(seeds, positions, samples, torch.full_like(seeds, word), probs.shape[-1])
        return (noise / probs.double()).argmin(-1)
