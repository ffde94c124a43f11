"""Holds every logit of drafted blocks against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from head_check.session import Session
from head_check.target import loaded, weights

from dflash_check.reference import Reference
from dflash_check.shape import Shape
from specdec_plugin_dflash import DFlashProposer


class BlockSession(Session):
    """Requests that draft blocks; see `Session`. Depths of a row all come of the block of its longest path.

    Args:
        proposer: a loaded one.
        reference: of the same head.
    """

    def __init__(self, proposer: DFlashProposer, reference: Reference) -> None:
        super().__init__(proposer)
        self._reference = reference

    def expected(self, name: str, path: Sequence[int]) -> torch.Tensor:
        """Return the reference's logits `[V']` after a drafted path."""
        text, row = self.text(name), self.rows[name]
        return self._reference.guesses(text, self.states(text)[1:], max(row.depths))[len(path)]


def make_reference(shape: Shape, tensors: dict[str, torch.Tensor]) -> Reference:
    """Return the reference of a head on this target."""
    return Reference(shape, tensors, *weights())


def make_proposer(folder: str, **keys: Any) -> DFlashProposer:
    """Return a loaded proposer; see `loaded`."""
    return loaded(DFlashProposer, is_draft=True, model=folder, **keys)
