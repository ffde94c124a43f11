"""The weight of a module."""

from __future__ import annotations

from torch import Tensor


def weight_of(module: object) -> Tensor:
    """Return a module's `weight`."""
    weight = getattr(module, "weight", None)
    assert isinstance(weight, Tensor)
    return weight
