"""A verdict that the host has not read when the next step is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from specdec.interfaces.device_nodes import rows_of
from specdec.interfaces.pass_memory import VerdictOffsets


class NeedsTokens(Exception):
    """A pass cannot run before the host has read the verdict that it follows."""


class UnreadVerdict(NamedTuple):
    """A verdict that the host has not read, and that a pass follows: its numbers are those for drafts that are rejected."""

    token_ids: torch.Tensor
    """`[V, N]` its emitted tokens."""
    offsets: VerdictOffsets | None
    """Where the memory of passes has the verdict; None if it is elsewhere."""
    rows: Sequence[int]
    """`[B]` each request's row in the verdict."""
    most: int
    """The most nodes that it may accept of a request; 0 behind a step without drafts."""

    @property
    def last_ids(self) -> torch.Tensor:
        """`[B]` the last token of each request, if nothing was drafted."""
        return rows_of(self.token_ids, self.rows)[:, 0]

    def kept(self) -> UnreadVerdict:
        """Return an own copy, as others write to the memory of passes; nothing was drafted."""
        return UnreadVerdict(self.last_ids[:, None].clone(), None, range(len(self.rows)), 0)
