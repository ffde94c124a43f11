"""What a device holds of an engine's running requests between its passes."""

from __future__ import annotations

from typing import NamedTuple

import torch

NUM_NUMBERS = 2**18
"""Numbers of a pass, with what is sent along, such as the texts of penalties, and of the verdict on it."""


class VerdictOffsets(NamedTuple):
    """Where a verdict is in `PassMemory.numbers`, as offsets."""

    num_accepted: int
    token_ids: int
    num_columns: int
    """Of `token_ids`."""
    row_starts: int = -1
    """First row of each request in the pass; -1 if they are elsewhere."""
    nodes: int = -1
    """Accepted nodes of trees, of which there is one column less; -1 for chains."""


class PassMemory:
    """One for all models of an engine, made by its scorer: the numbers of the target's passes, drafted nodes and verdicts.

    It holds what one pass leaves to the next; texts and places of requests are the host's, which sends their numbers.
    Passes run one after another. Verification writes its results behind drafted nodes, where the next draft loop finds them, or
    the next pass; nothing of that waits for the host. On the CPU it holds nothing: there the host has it all.

    Args:
        device: its device.
        num_numbers: how many numbers it has.
    """

    def __init__(self, device: torch.device, num_numbers: int = NUM_NUMBERS) -> None:
        self.numbers = torch.empty(num_numbers, dtype=torch.int64, device=device)
        self.room: torch.Tensor | None = None
        """`[M]` the part that the last pass leaves free, unless it has drafted nodes: the next one seldom writes there."""
        self.states: torch.Tensor | None = None
        """`[N, R, H]` what the last pass leaves for proposers that read states; None if it leaves nothing."""
        self.states_before: torch.Tensor | None = None
        """The same of the pass before, at least as many rows as the last one has with its padding."""
        self.num_passes = 0
        """Recorded passes of the target that have run."""

    @classmethod
    def on(cls, device: torch.device) -> PassMemory:
        """Return one for a device, without numbers for the CPU."""
        return cls(device, 0 if device.type == "cpu" else NUM_NUMBERS)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a view of the numbers."""
        there = self.numbers.untyped_storage().data_ptr()
        return self.numbers.numel() > 0 and tensor.untyped_storage().data_ptr() == there
