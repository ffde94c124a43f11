"""Nodes of drafts that are on a device and that the host has not read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import overload

import torch


class UnreadIds:
    """Token ids, and of trees parents; the host reads them once, by `read` when it needs one of them, or with the verdict.

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
        self._nodes = nodes if isinstance(nodes, torch.Tensor) else None
        self.memory: torch.Tensor | None = None
        """`[M]` int64 that begins with `nodes`, if they were copied: what follows is free until they are read."""
        self._known: list[list[tuple[int, ...]]] | None = None
        self.num_outside: int | None = None
        """Number of ids outside the vocabulary and of parents that do not precede their child; None until they are read."""

    @property
    def nodes(self) -> torch.Tensor:
        """`[1 or 2, B, N]` token ids and parents, which nobody else writes to."""
        if self._nodes is None:
            self._nodes = torch.stack([*self.given])
        return self._nodes

    @property
    def is_tree(self) -> bool:
        """Whether there are parents."""
        return len(self.given) == 2

    @property
    def width(self) -> int:
        """N."""
        return self.given[0].shape[1]

    @property
    def nodes_size(self) -> int:
        """Number of `nodes`, counted with those that mean nothing."""
        return len(self.given) * len(self.num_nodes) * self.width

    @property
    def rows(self) -> tuple[Sequence[int], ...]:
        """`[B]` rows of ids, whose lengths are known before they are read."""
        return tuple(UnreadRow(self, row) for row in range(len(self.num_nodes)))

    @property
    def parents(self) -> tuple[Sequence[int], ...] | None:
        """`[B]` rows of parents likewise; None for chains."""
        return tuple(UnreadRow(self, row, 1) for row in range(len(self.num_nodes))) if self.is_tree else None

    def read(self) -> None:
        """Wait for the device, unless the numbers were read before."""
        if self._known is None:
            self.take(self.nodes.tolist())

    @property
    def known(self) -> list[list[tuple[int, ...]]]:
        """`[1 or 2][B]` what `nodes` holds, possible ones in place of numbers that are not; they must have been read."""
        assert self._known is not None, "call `read` before"
        return self._known

    def take(self, numbers: Sequence[Sequence[Sequence[int]]]) -> None:
        """Take the numbers of `nodes`, which were read together with others."""
        given = [[row[:n] for row, n in zip(part, self.num_nodes, strict=True)] for part in numbers]
        last = self.vocab_size - 1
        self._known = [[tuple(min(max(token, 0), last) for token in row) for row in given[0]]]
        if self.is_tree:
            self._known.append([tuple(min(max(p, -1), n - 1) for n, p in enumerate(row)) for row in given[1]])
        self.num_outside = sum(
            number != possible
            for part, known in zip(given, self._known, strict=True)
            for row, own in zip(part, known, strict=True)
            for number, possible in zip(row, own, strict=True)
        )

    def copy_to(self, memory: torch.Tensor) -> None:
        """Move `nodes` to the beginning of a pass's own `memory` `[M]`, which is large enough."""
        shape = len(self.given), *self.given[0].shape
        place = memory[: prod(shape)].view(shape)
        torch._foreach_copy_([*place], [*(self.given if self._nodes is None else self._nodes)])
        self._nodes, self.memory = place, memory

    def scored(self, device: torch.device) -> torch.Tensor:
        """Return `[B * N]` the ids on a device, with valid ones in place of those outside the vocabulary."""
        return self.nodes[0].to(device).flatten().clamp(0, self.vocab_size - 1)

    def of_rows(self, indices: Sequence[int]) -> UnreadIds:
        """Return the nodes of some rows."""
        num_nodes = [self.num_nodes[row] for row in indices]
        return UnreadIds(rows_of(self.nodes, indices, 1), num_nodes, self.vocab_size)


def rows_of(tensor: torch.Tensor, indices: Sequence[int], dim: int = 0) -> torch.Tensor:
    """Return some rows of a tensor, the first ones as a view; the host does not wait for a device."""
    if list(indices) == list(range(len(indices))):
        return tensor.narrow(dim, 0, len(indices))
    return torch.stack([tensor.select(dim, row) for row in indices], dim)


class UnreadRow(Sequence[int]):
    """The ids, or with `part` 1 the parents, of one row of `ids`, whose length is known before these are read."""

    def __init__(self, ids: UnreadIds, row: int, part: int = 0) -> None:
        self.ids, self.row, self._part = ids, row, part

    def __len__(self) -> int:
        return self.ids.num_nodes[self.row]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, int) and not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.ids.known[self._part][self.row][index]
