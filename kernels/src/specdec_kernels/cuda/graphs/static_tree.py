"""The recorded draft loop of trees that are expanded by joint confidence (EAGLE-2, arXiv 2406.16858)."""

from __future__ import annotations

import torch

from specdec.noise import Stream, node_word
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_loop import RecordedLoop
from specdec_kernels.cuda.graphs.static_start import RunStep
from specdec_kernels.cuda.paged_pass import Int64s, PassNumbers
from specdec_kernels.triton.noise import NoiseKeys
from specdec_runtime.interfaces import HostRows

_LEAST = 1e-30
"""Confidence of a node that is all but impossible; its logarithm is finite."""


class StaticTree(RecordedLoop):
    """Chooses W children of each open node in each step, of all chosen the W nodes of most joint confidence, and runs these.

    The rows of W nodes per step follow the committed ones in the cache. A node sees those of its ancestors, by a table of its
    own, as in `PassNumbers.branches`. Only heads draft trees, and in their caches no rows are shared.
    """

    def _packed(self, host: HostRows, numbers: PassNumbers, table: Int64s) -> Int64s:
        """See `RecordedLoop._packed`: the loop makes the numbers of its passes from the table."""
        return self.step.padding(table)

    def run(self, run_pass: RunStep) -> Tensors:
        """See `RecordedLoop.run`: `[T, K]` ids of the best nodes, best first, their confidences, and their parents.

        A row that is not as deep as others has nodes of no joint confidence at the end.
        """
        width, size = self.shape.rules.width, self._num_rows
        self._take_verdict()
        logits, carry = self.start.run(run_pass)
        assert carry is not None, "trees are drafted by heads"
        self._begin()
        ids, confidences, parents, joints = [], [], [], []
        joint = torch.zeros_like(self.table.depths[:size, None], dtype=torch.float32)
        frontier = torch.full_like(self.table.depths[:size, None], -1)
        lines = frontier[:, :, None][:, :, :0]
        first, num_nodes = logits[:, :0], 0
        for step in range(self.shape.num_steps):
            probs, index = self._scores(logits, step).softmax(-1).topk(width)
            confidences.append(probs.clamp(_LEAST, 1.0).view(size, -1))
            ids.append(self.choice.named(index).view(size, -1))
            parents.append(_each(frontier, width))
            above = _each(joint, width) + confidences[-1].log()
            joints.append(above.masked_fill((self.table.depths[:size] <= step)[:, None], -torch.inf))
            if step + 1 == self.shape.num_steps:
                break
            # The best W of this depth are continued: their rows take the states of the nodes that they are children of.
            joint, best = _best_first(joints[-1], width)
            frontier = num_nodes + best
            num_nodes += ids[-1].shape[1]
            places = best // width
            lines = self._lengthened(lines, places, step)
            self._advance(ids[-1].gather(1, best), lines, step)
            rows = places[:, :, None].expand(-1, -1, carry.shape[-1])
            assert self.step.features is not None
            self.step.features.copy_(carry.view(size, -1, carry.shape[-1]).gather(1, rows).flatten(0, 1))
            logits, carry, *_ = run_pass(self.step, self.step.features)
            first = logits.view(size, -1) if step == 0 else first
        # All nodes are known: the best of them, best first, are the draft, and parents are renamed to their places in it.
        _, order = _best_first(torch.cat(joints, 1))
        best = order[:, : self.shape.rules.num_nodes]
        above = torch.cat(parents, 1).gather(1, best)
        renamed = torch.where(above < 0, -1, order.argsort(1).gather(1, above.clamp_min(0)))
        chosen, sure = torch.cat(ids, 1).gather(1, best), torch.cat(confidences, 1).gather(1, best)
        return chosen, sure, renamed, first.clone()

    def _begin(self) -> None:
        """Write what all passes share: tables of consecutive slots, and a row for each node of requests that are real."""
        rows, width = self.step.rows, self.shape.rules.width
        slots = _each(self.table.first_slots[: self._num_rows], width)
        columns = torch.arange(rows.block_tables.shape[1], device=slots.device)
        torch.add(slots[:, None], columns, out=rows.block_tables)
        is_real = _each(self.table.depths[: self._num_rows] > 0, width)
        rows.query_starts[1:].copy_(is_real.cumsum(0))

    def _scores(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """Return scores `[R, num_ids]`, the softmax of which is the confidence; where tokens are coupled, with their noise."""
        plain = logits[:, : self.shape.rules.num_ids].float().log_softmax(-1)
        if self.shape.is_greedy:
            return plain
        count = len(logits) // self._num_rows
        settings = _each(self.choice.settings, count)
        seeds, positions, samples = (
            _each(key[: self._num_rows], count)
            for key in (self.table.seeds, self.table.positions + step, self.table.samples)
        )
        keys, law = NoiseKeys(seeds, positions, samples), self.choice.law(plain, settings)
        noise = self.choice.exponentials(keys, node_word(Stream.TARGET))
        return torch.where(settings[0, :, None] > 0, (law.log() - noise.log()).float(), plain)

    def _lengthened(self, lines: torch.Tensor, places: torch.Tensor, step: int) -> torch.Tensor:
        """Return for nodes `[T, W]` the rows, after the committed ones, of their ancestors and themselves `[T, W, step + 1]`.

        Args:
            lines: the same of the nodes that ran before.
            places: `[T, W]` which of these is the parent.
            step: the step that chose the nodes.
        """
        size, width = places.shape
        own = step * width + torch.arange(width, device=places.device).expand(size, -1)
        above = lines.gather(1, places[:, :, None].expand(-1, -1, step))
        return torch.cat((above, own[:, :, None]), 2)

    def _advance(self, token_ids: torch.Tensor, lines: torch.Tensor, step: int) -> None:
        """Write the inputs of the pass over nodes `[T, W]`; of rows that need no deeper ones it is written nowhere."""
        batch, rows, width = self.step.batch, self.step.rows, token_ids.shape[1]
        depths, cached = self.table.depths[: self._num_rows, None], self.table.cached[: self._num_rows, None]
        behind = self.table.first_slots[: self._num_rows, None] + cached
        is_wanted = (depths > step + 1).expand(-1, width)
        batch.token_ids.copy_(torch.where(is_wanted, token_ids, 0).flatten())
        place = torch.where(is_wanted, cached + step, 0).flatten()
        batch.positions.copy_(place.clamp_max(self._max_positions - 1))
        rows.slots.copy_(torch.where(is_wanted, behind + lines[:, :, -1], -1).flatten())
        rows.context_lens.copy_(place + (depths > 0).expand(-1, width).flatten())
        last = rows.block_tables.shape[1] - 1
        columns = cached[:, :, None] + torch.arange(step + 1, device=cached.device)
        columns = columns.clamp_max(last).expand(-1, width, -1).flatten(0, 1)
        rows.block_tables.scatter_(1, columns, (behind[:, :, None] + lines).flatten(0, 1))


def _each(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return a tensor in whose last dimension each number is there `count` times."""
    return tensor[..., None].expand(*tensor.shape, count).flatten(-2).contiguous()


def _best_first(joints: torch.Tensor, count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the highest of each row and their places, highest first; ties go to the earlier one."""
    values, places = joints.sort(dim=1, descending=True, stable=True)
    return values[:, :count], places[:, :count]
