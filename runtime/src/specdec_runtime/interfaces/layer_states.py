"""States of recurrent and convolution layers of a runner's model."""

from __future__ import annotations

from typing import Protocol

from specdec.interfaces import LayerStates


class DraftStates(LayerStates, Protocol):
    """The states of a proposer's model, whose passes begin where the proposer says."""

    def holds(self, owner: object, num_rows: int) -> bool:
        """Return whether a pass of a request can begin after `num_rows` rows: those of its last pass, or drafted in it."""
