"""Operations on rows of logits: with torch, on any device, where no backend does them faster."""

from __future__ import annotations

from functools import cache

import torch

from specdec import registry
from specdec.backends.row_operations import choose_row_operations
from specdec.interfaces.backend import Backend
from specdec.interfaces.row_operations import Int64s, RowOperations
from specdec.noise.philox import exponentials, uniforms


def row_operations(device: torch.device) -> RowOperations:
    """Return the operations for tensors on a device, a backend's or torch's; chosen once for each set of backends."""
    return _chosen(device, registry.backends())


@cache
def _chosen(device: torch.device, backends: tuple[Backend, ...]) -> RowOperations:
    return choose_row_operations(device, TorchRows(device))


class TorchRows(RowOperations):
    """The reference that backends are compared with.

    Args:
        device: of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def valid_rows(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return `[R]` bool: rows without NaN and with a value above -inf.

        On a device the mask stays there to avoid a synchronisation, so it is never None.
        """
        is_valid = logits.amax(-1) > -torch.inf  # NaN is the maximum of a row that has one
        return None if logits.device.type == "cpu" and bool(is_valid.all()) else is_valid

    def multinomial(
        self, weights: torch.Tensor, seeds: Int64s, positions: Int64s, samples: Int64s, words: torch.Tensor
    ) -> torch.Tensor:
        """Return `[B]` one id per row, drawn from the weights `[B, V]`."""
        keys = self._sent(seeds), self._sent(positions), self._sent(samples)
        noise = exponentials(*keys, words, weights.shape[-1])
        return (noise / weights.double()).argmin(-1)

    def gumbel(
        self, seeds: Int64s, positions: Int64s, samples: Int64s, word: int, num_ids: int
    ) -> torch.Tensor:
        """Return `[B, num_ids]` Gumbel noise, float32."""
        keys = self._sent(seeds), self._sent(positions), self._sent(samples)
        return -exponentials(*keys, torch.full_like(keys[0], word), num_ids).log().float()

    def uniforms(self, seeds: Int64s, positions: Int64s, samples: Int64s, words: Int64s) -> torch.Tensor:
        """Return `[B, N]` one uniform per row and word, float64."""
        rows, columns = len(seeds), len(words)
        first, second, third = (
            self._sent(key).repeat_interleave(columns) for key in (seeds, positions, samples)
        )
        return uniforms(first, second, third, self._sent(words).repeat(rows), 1).view(rows, columns)

    def _sent(self, array: Int64s) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
