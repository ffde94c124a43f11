"""Keys and values of the text before a block, which have no rows of their own in any pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from specdec.backends import speed_up_linears
from specdec.interfaces import Runner
from specdec.runner import sent
from specdec_drafting import Piece
from specdec_plugin_dflash.head import DFlashHead


class ContextRows(nn.Module):
    """Writes keys and values of the target's states into the cache of a head, all layers by one product.

    Args:
        head: the head, whose weights are final.
        runner: the runner with its cache.
    """

    def __init__(self, head: DFlashHead, runner: Runner) -> None:
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

    def write(self, states: tuple[Tensor, ...], pieces: Sequence[tuple[int, Piece]]) -> None:
        """Write new rows of several requests.

        Args:
            states: the target's states of a step `[T, Ht]`, one for each layer that the head reads.
            pieces: for each request the first row of `states` that is written, and the piece of its new rows, with at least
                one row.
        """
        head, runner = self._of
        counts = [len(piece.ids) for _, piece in pieces]
        rows = np.concatenate(
            [np.arange(first, first + n) for (first, _), n in zip(pieces, counts, strict=True)]
        )
        places = [np.arange(piece.num_cached, piece.num_cached + len(piece.ids)) for _, piece in pieces]
        slots = [at + piece.first_slot for at, (_, piece) in zip(places, pieces, strict=True)]
        if len(rows) < len(states[0]):
            chosen = sent(torch.from_numpy(rows), runner.device)
            states = tuple(state.index_select(0, chosen) for state in states)
        joined = torch.cat(states, -1).to(head.fc.weight.dtype)
        projected = self.all_layers(head.hidden_norm(self.fc(joined)))
        positions = sent(torch.from_numpy(np.concatenate(places)), runner.device)
        at: Tensor | slice = slice(int(slots[0][0]), int(slots[0][-1]) + 1)
        if len(slots) > 1:
            at = sent(torch.from_numpy(np.concatenate(slots)), runner.device)
        for layer, (keys, values) in enumerate(head.split_context(projected, positions)):
            runner.cache.write(layer, keys, values, at)
