"""Token ids of a draft that are on a device and that the host has not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch


class UnreadIds:
    """Token ids of chains; the host reads them once, when it first needs one of them or together with the verdict.

    Args:
        token_ids: `[B, N]` int64. Ids outside the vocabulary may be among them.
        num_nodes: `[B]` number of nodes of each row; what follows them has no meaning.
        vocab_size: number of the target's ids.
    """

    def __init__(self, token_ids: torch.Tensor, num_nodes: Sequence[int], vocab_size: int) -> None:
        self.token_ids, self.num_nodes, self.vocab_size = token_ids, num_nodes, vocab_size
        self._known: list[tuple[int, ...]] | None = None
        self.num_outside: int | None = None
        """Number of nodes with an id outside the vocabulary; None until the ids are read."""

    @property
    def rows(self) -> tuple[Sequence[int], ...]:
        """`[B]` rows of ids, whose lengths are known; see `known`."""
        return tuple(UnreadRow(self, row) for row in range(len(self.num_nodes)))

    @property
    def known(self) -> list[tuple[int, ...]]:
        """`[B]` the ids, for which the host waits; valid ones in place of those outside the vocabulary."""
        if self._known is None:
            self.take(self.token_ids.tolist())
        assert self._known is not None
        return self._known

    def take(self, numbers: Sequence[Sequence[int]]) -> None:
        """Take the numbers `[B, N]` of `token_ids`, which were read together with others."""
        rows = [row[:count] for row, count in zip(numbers, self.num_nodes, strict=True)]
        self.num_outside = sum(not 0 <= token < self.vocab_size for row in rows for token in row)
        self._known = [tuple(min(max(token, 0), self.vocab_size - 1) for token in row) for row in rows]

    def scored(self, device: torch.device, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return `[B * N]` the ids on a device, in `out` if given, with valid ones in place of those outside the vocabulary."""
        return torch.clamp(self.token_ids.to(device).flatten(), 0, self.vocab_size - 1, out=out)

    def of_rows(self, indices: Sequence[int]) -> UnreadIds:
        """Return the ids of some rows."""
        ids = self.token_ids
        is_first = list(indices) == list(range(len(indices)))
        ids = ids[: len(indices)] if is_first else torch.stack([ids[row] for row in indices])
        return UnreadIds(ids, [self.num_nodes[row] for row in indices], self.vocab_size)


class UnreadRow(Sequence[int]):
    """The ids of one row, `row`, of `ids`."""

    def __init__(self, ids: UnreadIds, row: int) -> None:
        self.ids, self.row = ids, row

    def __len__(self) -> int:
        return self.ids.num_nodes[self.row]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.ids.known[self.row][index]
