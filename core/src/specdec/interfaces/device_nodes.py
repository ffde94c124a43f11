"""Nodes of drafts that are on a device and that the host has not read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Rows = tuple[tuple[int, ...], ...]
"""Ids, or parents, of each row's nodes."""


class DeviceNodes:
    """Token ids, and of trees parents; the host waits for them once, in `read`, unless they came with the verdict (`take`).

    Args:
        nodes: `[1, B, N]` int64 token ids; of trees `[2, B, N]` token ids and parents. There may be ids outside the vocabulary
            among them, and parents that do not precede their child. Two tensors are copied once, when they are first needed.
        num_nodes: `[B]` number of nodes of each row; what follows them has no meaning.
        vocab_size: number of the target's ids.
    """

    def __init__(
        self, nodes: torch.Tensor | Sequence[torch.Tensor], num_nodes: Sequence[int], vocab_size: int
    ) -> None:
        self.given, self.num_nodes, self.vocab_size = nodes, num_nodes, vocab_size
        """The arguments."""
        self.is_tree = len(nodes) == 2
        """Whether there are parents."""
        self.width, self.nodes_size = nodes[0].shape[1], len(nodes) * nodes[0].numel()
        """N, and the number of `nodes`, counted with those that mean nothing."""
        self._nodes = nodes if isinstance(nodes, torch.Tensor) else None
        self.memory: torch.Tensor | None = None
        """`[M]` int64 that begins with `nodes`, if they were copied: what follows is free until the next pass is sent."""
        self._known: tuple[Rows, Rows | None] | None = None
        self.num_outside: int | None = None
        """Number of ids outside the vocabulary and of parents that do not precede their child; None until they are read."""

    @property
    def nodes(self) -> torch.Tensor:
        """`[1 or 2, B, N]` token ids and parents, which nobody else writes to."""
        if self._nodes is None:
            self._nodes = torch.stack([*self.given])
        return self._nodes

    def read(self) -> tuple[Rows, Rows | None]:
        """Return `[B][num_nodes]` token ids and parents, None for chains, with possible ones in place of those that are not.

        Waits for the device, unless the numbers are known or there are none.
        """
        if not any(self.num_nodes):
            return (none := ((),) * len(self.num_nodes)), none if self.is_tree else None
        if self._known is None:
            self.take(np.array(self.nodes.tolist()))
        assert self._known is not None
        return self._known

    def take(self, numbers: npt.NDArray[np.int64]) -> None:
        """Take the numbers of `nodes`, which were read together with others."""
        counts, places, (ids, *parents) = self.num_nodes, np.arange(self.width), numbers
        possible = [ids.clip(0, self.vocab_size - 1), *(above.clip(-1, places - 1) for above in parents)]
        self.num_outside = int(((possible != numbers) & (places < np.c_[counts])).sum())
        known = [tuple(tuple(r[:n]) for r, n in zip(p.tolist(), counts, strict=True)) for p in possible]
        self._known = known[0], known[1] if parents else None

    def copy_to(self, memory: torch.Tensor) -> None:
        """Move `nodes` to the beginning of a pass's own `memory` `[M]`, which is large enough."""
        place = memory[: self.nodes_size].view(len(self.given), *self.given[0].shape)
        torch._foreach_copy_([*place], [*(self.given if self._nodes is None else self._nodes)])
        self._nodes, self.memory = place, memory

    def scored(self, device: torch.device) -> torch.Tensor:
        """Return `[B * N]` the ids on a device, with valid ones in place of those outside the vocabulary."""
        return self.nodes[0].to(device).flatten().clamp(0, self.vocab_size - 1)

    def of_rows(self, indices: Sequence[int]) -> DeviceNodes:
        """Return the nodes of some rows."""
        num_nodes = [self.num_nodes[row] for row in indices]
        return DeviceNodes(rows_of(self.nodes, indices, 1), num_nodes, self.vocab_size)


def rows_of(tensor: torch.Tensor, indices: Sequence[int], dim: int = 0) -> torch.Tensor:
    """Return some rows of a tensor, the first ones as a view; the host does not wait for a device."""
    if list(indices) == list(range(len(indices))):
        return tensor.narrow(dim, 0, len(indices))
    return torch.stack([tensor.select(dim, row) for row in indices], dim)
