"""Keys and values of the text before a block, which have no rows of their own in any pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from specdec.backends import speed_up_linears
from specdec.interfaces import Runner
from specdec.runner import in_inference_mode, sent
from specdec_drafting import Piece
from specdec_plugin_dflash.head import DFlashHead

if TYPE_CHECKING:
    from specdec_kernels.cuda.graphs import RowGraphs


class ContextRows(nn.Module):
    """Writes keys and values of the target's states into the cache of a head, all layers by one product.

    Args:
        head: the head, whose weights are final.
        runner: the runner with its cache.
        most_new: the most new rows of a request after its prompt, if their writing is to be recorded; else 0.
    """

    def __init__(self, head: DFlashHead, runner: Runner, most_new: int) -> None:
        super().__init__()
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
        self._most_new = most_new
        self._graphs: RowGraphs | None = None
        if most_new:
            runner.prepared.append(self._record)

    def write(self, states: tuple[Tensor, ...], pieces: Sequence[tuple[int, Piece]]) -> None:
        """Write new rows of several requests.

        Args:
            states: the target's states of a step `[T, Ht]`, one for each layer that the head reads.
            pieces: for each request the first row of `states` that is written, and the piece of its new rows, with at least
                one row.
        """
        runner = self._of[1]
        counts = [len(piece.ids) for _, piece in pieces]
        rows = np.concatenate(
            [np.arange(first, first + n) for (first, _), n in zip(pieces, counts, strict=True)]
        )
        places = [np.arange(piece.num_cached, piece.num_cached + len(piece.ids)) for _, piece in pieces]
        slots = [at + piece.first_slot for at, (_, piece) in zip(places, pieces, strict=True)]
        positions = np.concatenate(places)
        if self._graphs is not None and self._graphs.run(
            states, np.stack((rows, positions, np.concatenate(slots)))
        ):
            return
        if len(rows) < len(states[0]):
            chosen = sent(torch.from_numpy(rows), runner.device)
            states = tuple(state.index_select(0, chosen) for state in states)
        at: Tensor | slice = slice(int(slots[0][0]), int(slots[0][-1]) + 1)
        if len(slots) > 1:
            at = sent(torch.from_numpy(np.concatenate(slots)), runner.device)
        self._write(states, sent(torch.from_numpy(positions), runner.device), at)

    def _write(self, states: tuple[Tensor, ...], positions: Tensor, slots: Tensor | slice) -> None:
        head, runner = self._of
        joined = torch.cat(states, -1).to(head.fc.weight.dtype)
        projected = self.all_layers(head.hidden_norm(self.fc(joined)))
        for layer, (keys, values) in enumerate(head.split_context(projected, positions)):
            runner.cache.write(layer, keys, values, slots)

    @in_inference_mode
    def _record(self, num_requests: int) -> None:
        """Record the writing of new rows of so many requests."""
        head, runner = self._of
        from specdec_kernels.cuda.graphs import CudaRecorder, RowGraphs

        def write(states: tuple[Tensor, ...], numbers: Tensor) -> None:
            rows, positions, slots = numbers
            self._write(tuple(state.index_select(0, rows) for state in states), positions, slots)

        settings = head.settings
        like = torch.empty(
            len(settings.aux_layers), settings.target_hidden_size, dtype=runner.dtype, device=runner.device
        )
        self._graphs = RowGraphs("rows of a text", write, CudaRecorder(runner.device), like, 3)
        self._graphs.prepare(num_requests * self._most_new)
