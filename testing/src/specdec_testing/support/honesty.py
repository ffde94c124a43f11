"""Tests whether drawn tokens follow the reported q.

A q that is off by total variation 0.05 on these cells is detected within `NUM_DRAWS` draws with a probability above 0.9999,
at a false alarm rate of 1e-6: the statistic's noncentrality is then at least 20,000 * (2 * 0.05)^2 = 200, for 63 degrees
of freedom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch

from specdec_testing.support.chi_square import FALSE_ALARMS, fit
from specdec_testing.support.rows import Row

NUM_DRAWS = 20_000
MAX_NODES = 3
"""Number of nodes of each draft that are tested."""
_OWN_CELL = 32
"""Number of likeliest ids with their own cell; all other ids share the same number of cells."""
_COARSE = (1, 2, 3, 4, 8, 16, 32)
"""First ranks of the coarse cells of the joint test, after the first cell."""


class Tally:
    """Counts drawn tokens by their rank in the reported q, and jointly with the previously drawn token."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        size = 2 * _OWN_CELL
        self._counts: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros(size, dtype=torch.float64))
        self._expected: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros(size, dtype=torch.float64))
        self.num_draws = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Count drafts of different requests."""
        self.num_draws += sum(1 for row in rows if row.tokens and row.probs is not None)
        before: dict[int, int] = {}
        for node in range(MAX_NODES):
            present = [i for i, row in enumerate(rows) if len(row.tokens) > node and row.probs is not None]
            if not present:
                return
            distributions = torch.stack([rows[i].probs_of(node, self._vocab_size) for i in present])
            tokens = torch.tensor([rows[i].tokens[node] for i in present])
            cells, masses, coarse, coarse_masses = _cells(distributions, tokens)
            self._add(f"node {node}", cells, masses)
            if node:
                offsets = torch.tensor([8 * before[i] for i in present])
                wide = torch.zeros(len(present), 64, dtype=torch.float64)
                wide.scatter_(1, offsets[:, None] + torch.arange(8), coarse_masses)
                self._add(f"node {node} after node {node - 1}", offsets + coarse, wide)
            before = dict(zip(present, coarse.tolist(), strict=True))

    def complaint(self) -> str | None:
        """Return the deviation found, or None."""
        for name, counts in self._counts.items():
            result = fit(counts, self._expected[name])
            if result.impossible:
                return f"{name}: a token was drawn to which its q gives nothing"
            if result.p_value < FALSE_ALARMS / (2 * MAX_NODES):
                distance = float((counts - self._expected[name]).abs().sum() / (2 * counts.sum()))
                return (
                    f"{name}: tokens do not follow q (total variation about {distance:.3f} in {int(counts.sum())} draws, "
                    f"p = {result.p_value:.1e})"
                )
        return None

    def _add(self, name: str, cells: torch.Tensor, masses: torch.Tensor) -> None:
        self._counts[name] += torch.bincount(cells, minlength=2 * _OWN_CELL).double()
        self._expected[name] += masses.sum(0)


def _cells(
    distributions: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each token's cell `[R]` and the cells' probabilities `[R, 64]`, then the same for 8 coarse cells."""
    num_rows, size = distributions.shape
    width = min(_OWN_CELL, size)
    ids = distributions.topk(width, -1).indices
    index = torch.arange(size).expand(num_rows, size)
    cell_of = _OWN_CELL + index % _OWN_CELL
    cell_of = cell_of.scatter(1, ids, torch.arange(width).expand(num_rows, width))
    masses = torch.zeros(num_rows, 2 * _OWN_CELL, dtype=torch.float64).scatter_add_(1, cell_of, distributions)
    cells = cell_of.gather(1, tokens[:, None])[:, 0]
    coarse_of_cell = torch.bucketize(torch.arange(2 * _OWN_CELL), torch.tensor(_COARSE), right=True)
    coarse_masses = torch.zeros(num_rows, 8, dtype=torch.float64)
    coarse_masses.index_add_(1, coarse_of_cell, masses)
    return cells, masses, coarse_of_cell[cells], coarse_masses
