"""Rotary factors by position, computed with the model's own module."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from specdec_kernels.layers.parts import LayerParts, Rotation
from specdec_kernels.layers.structure import rotary_factors

Floats = npt.NDArray[np.float32]
Factors = tuple[torch.Tensor, torch.Tensor]


class RotaryTable:
    """Cosines and signed sines by position; the table grows when longer contexts appear.

    With `sin` negated in the first of two dimensions that are rotated together, rotation is `x * cos + partner(x) * sin`.

    Args:
        module: the model's rotary module.
        like: any tensor `[.., H]` of the model's dtype and device.
        rotation: which factors.
    """

    def __init__(self, module: nn.Module, like: torch.Tensor, rotation: Rotation) -> None:
        self._module, self._like, self._rotation = module, like, rotation
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

    def rows(self, positions: torch.Tensor, length: int) -> Factors:
        """Return cosines and signed sines, each `[T, 1, R]`, for `positions [T]`, all below `length`."""
        self._cover(length)
        return self._cos[positions], self._sin[positions]

    def halves(self) -> Factors:
        """Return cosines and sines, each `[P, R / 2]`, of the pairs that are rotated together, for the positions covered."""
        half = self._cos.shape[-1] // 2
        return self._cos[:, 0, :half].contiguous(), self._sin[:, 0, half:].contiguous()

    def cpu_tables(self, length: int) -> tuple[Floats, Floats]:
        """Return the tables `[P, R]` for positions below `length`, as numpy arrays."""
        self._cover(length)
        return self._host

    def _cover(self, length: int) -> None:
        if length > self._cos.shape[0]:
            self._grow(max(length, 2 * self._cos.shape[0], 1024))

    def _grow(self, length: int) -> None:
        positions = torch.arange(length, device=self._like.device)
        cos, sin = rotary_factors(self._module, self._like, positions, self._rotation.layer_type)
        if self._rotation.is_interleaved:
            cos, sin = (_by_pair(each).repeat_interleave(2, -1) for each in (cos, sin))
            sin[:, ::2].neg_()
        else:
            half = sin.shape[-1] // 2
            sin = torch.cat((-sin[:, :half], sin[:, half:]), -1)
        self._cos, self._sin = cos[:, None].contiguous(), sin[:, None].contiguous()
        if self._cos.device.type == "cpu":
            self._host = self._cos[:, 0].float().numpy(), self._sin[:, 0].float().numpy()


def _by_pair(factors: torch.Tensor) -> torch.Tensor:
    """Return a factor `[P, R / 2]` for each pair of dimensions, of `[P, R]` with each twice in a row, or all of them twice."""
    first = factors[:, ::2]
    return first if torch.equal(first, factors[:, 1::2]) else factors[:, : first.shape[1]]


class RotaryTables:
    """The tables of a model, one for each rotation that its layers have.

    Args:
        module: the model's rotary module.
        like: see `RotaryTable`.
        layers: the layers.
    """

    def __init__(self, module: nn.Module, like: torch.Tensor, layers: Iterable[LayerParts]) -> None:
        self._rotations = [layer.rotation for layer in layers]
        self._tables = {r: RotaryTable(module, like, r) for r in self._rotations if r is not None}
        self.num_positions = 0
        """Positions that all tables of `by_layer` cover; see `cover`."""
        self.by_layer: list[tuple[Floats, Floats] | None] = [None] * len(self._rotations)
        """Each layer's tables as numpy arrays, None for one without; the same list until a table grows."""

    @property
    def only(self) -> RotaryTable:
        """The table of a model that has one rotation."""
        (table,) = self._tables.values()
        return table

    def hold(self, length: int) -> None:
        """Keep factors of all positions below `length` from now on."""
        for table in self._tables.values():
            table.hold(length)

    def forget(self) -> None:
        """Free the factors, unless they are held."""
        self.num_positions = 0
        for table in self._tables.values():
            table.forget()

    def rows(self, positions: torch.Tensor, length: int) -> dict[Rotation, Factors]:
        """Return each rotation's factors; see `RotaryTable.rows`."""
        return {rotation: table.rows(positions, length) for rotation, table in self._tables.items()}

    def cover(self, length: int) -> None:
        """Make `by_layer` cover positions below `length`."""
        tables = {rotation: table.cpu_tables(length) for rotation, table in self._tables.items()}
        self.by_layer = [None if rotation is None else tables[rotation] for rotation in self._rotations]
        self.num_positions = min((len(cos) for cos, _ in tables.values()), default=length)
