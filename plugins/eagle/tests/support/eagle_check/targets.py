"""Random heads on the small target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from head_check.target import loaded, weights

from eagle_check.layout import Layout, write_head
from eagle_check.reference import Reference
from eagle_check.shape import Shape, random_tensors
from specdec_plugin_eagle import Eagle3Proposer, EagleProposer
from specdec_runtime.drafting import HeadProposer


def make_reference(shape: Shape, tensors: dict[str, torch.Tensor]) -> Reference:
    """Return the reference of a head on this target."""
    return Reference(shape, tensors, *weights())


def make_proposer(folder: str, shape: Shape, **keys: Any) -> HeadProposer:
    """Return a loaded proposer; see `loaded`."""
    kind: type[HeadProposer] = Eagle3Proposer if shape.is_eagle3 else EagleProposer
    return loaded(kind, model=folder, **keys)


def make_head(
    folder: Path, shape: Shape, layout: Layout | None = None, seed: int = 0
) -> tuple[str, dict[str, torch.Tensor]]:
    """Write a random head; returns its folder and tensors."""
    tensors = random_tensors(shape, seed)
    return write_head(folder, shape, tensors, layout), tensors
