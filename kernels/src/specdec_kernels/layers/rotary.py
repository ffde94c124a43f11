"""Rotary factors by position, computed with the model's own module."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Floats = npt.NDArray[np.float32]


class RotaryTable:
    """Cosines and signed sines by position; the table grows when longer contexts appear.

    With `sin` negated in its first half, rotation is `x * cos + x.roll(D / 2) * sin`.
    """

    def __init__(self, module: nn.Module, like: torch.Tensor) -> None:
        self._module = module
        self._like = like
        self._cos = self._sin = like.new_empty((0, 1, 0))
        self._is_held = False

    def hold(self, length: int) -> None:
        """Make the table cover positions below `length` for good; shorter contexts then no longer change it."""
        self._cover(length)
        self._is_held = True

    def forget(self) -> None:
        """Free the table, unless it is held: the probe of a model needs its last positions, and few requests do."""
        if not self._is_held:
            self._cos = self._sin = self._like.new_empty((0, 1, 0))

    def rows(self, positions: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and signed sines, each `[T, 1, D]`, for `positions [T]`, all below `length`."""
        self._cover(length)
        return self._cos[positions], self._sin[positions]

    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines, each `[P, D / 2]`, of the pairs that are rotated together, for the positions covered."""
        half = self._cos.shape[-1] // 2
        return self._cos[:, 0, :half].contiguous(), self._sin[:, 0, half:].contiguous()

    def cpu_tables(self, length: int) -> tuple[Floats, Floats]:
        """Return the tables `[P, D]` for positions below `length`, as numpy arrays."""
        self._cover(length)
        return self._host

    def _cover(self, length: int) -> None:
        if length > self._cos.shape[0]:
            self._grow(max(length, 2 * self._cos.shape[0], 1024))

    def _grow(self, length: int) -> None:
        positions = torch.arange(length, device=self._like.device)[None]
        cos, sin = self._module(self._like[:1, None], position_ids=positions)
        half = sin.shape[-1] // 2
        sin = torch.cat((-sin[..., :half], sin[..., half:]), -1)
        self._cos, self._sin = cos[0, :, None].contiguous(), sin[0, :, None].contiguous()
        if self._cos.device.type == "cpu":
            self._host = self._cos[:, 0].float().numpy(), self._sin[:, 0].float().numpy()
