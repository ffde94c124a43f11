"""Keys and values of the text before a block, which have no rows of their own in any pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from specdec.interfaces import ProposeBatch, sent
from specdec_plugin_dflash.head import DFlashHead
from specdec_runtime.backends import speed_up_linears
from specdec_runtime.drafting import RowChunk, new_rows
from specdec_runtime.interfaces import Runner


class Context(nn.Module):
    """Writes keys and values of the target's states into the cache of a head, all layers by one product.

    Args:
        head: the head, whose weights are final.
        runner: the runner with its cache.
    """

    def __init__(self, head: DFlashHead, runner: Runner) -> None:
        super().__init__()
        self.is_causal = head.settings.views[0].is_causal
        self._of = (head, runner)  # a tuple, which torch does not take for parts of this module
        weight, bias = (None if part is None else part.detach() for part in head.projection())
        assert weight is not None
        self.fc = nn.Linear(head.fc.in_features, head.fc.out_features, bias=False, device="meta")
        self.fc.weight = head.fc.weight
        self.all_layers = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        self.all_layers.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            self.all_layers.bias = nn.Parameter(bias, requires_grad=False)
        speed_up_linears(self)

    def write(self, batch: ProposeBatch, row_chunks: Mapping[int, RowChunk]) -> None:
        """Write new rows of several requests.

        Args:
            batch: the step's batch.
            row_chunks: new rows by row of the batch, of each at least one.
        """
        runner, states = self._of[1], new_rows(batch, row_chunks, batch.aux_hidden_states).states
        places = [
            np.arange(row_chunk.num_cached, row_chunk.num_cached + len(row_chunk.ids))
            for row_chunk in row_chunks.values()
        ]
        slots = [at + row_chunk.first_slot for at, row_chunk in zip(places, row_chunks.values(), strict=True)]
        at: Tensor | slice = slice(int(slots[0][0]), int(slots[0][-1]) + 1)
        if len(slots) > 1:
            at = sent(torch.from_numpy(np.concatenate(slots)), runner.device)
        positions = np.concatenate(places)
        at_positions = sent(torch.from_numpy(positions), runner.device)
        for layer, (keys, values) in enumerate(self.rows(states, at_positions)):
            runner.cache.write(layer, keys, values, at)

    def rows(self, states: tuple[Tensor, ...], positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """See `specdec.interfaces.ContextRows`."""
        head = self._of[0]
        joined = torch.cat(states, -1).to(head.fc.weight.dtype)
        projected = self.all_layers(head.hidden_norm(self.fc(joined)))
        return head.split_context(projected, positions)

    def finish(self, logits: Tensor) -> Tensor:
        """See `specdec.interfaces.ContextRows`."""
        return self._of[0].finish(logits)
