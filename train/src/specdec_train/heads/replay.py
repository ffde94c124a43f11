"""Replay buffer of the target's states: batches are short stretches drawn from the last windows read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specdec_train.heads.states import StateReader
from specdec_train.packing import PackedDocuments
from specdec_train.precision import autocast, matmul_dtype


class Stretches(NamedTuple):
    """Consecutive positions of the text with the target's states."""

    hidden: Tensor
    """`[S, T, H]` the target's states."""
    tokens: Tensor
    """`[S, T + 1]`."""


class Replay:
    """A replay buffer of the target's states, for heads that read one state at a time.

    Running the target is a large part of a training step, and a batch of neighbouring positions is mostly
    about one text. Therefore the states of the last windows are kept, and a batch consists of short stretches
    from all of them. The positions of a batch depend only on its step; a resumed run reads the kept windows
    again.

    Args:
        reader: reads the target's states.
        data: windows of training text.
        batch_size: B; a batch has as many tokens as B windows.
        length: positions of a stretch that are trained on.
        margin: positions after these whose states are also included.
        reuse: how often a position is drawn on average before its window is replaced.
        num_windows: C, number of kept windows.
        seed: seed of the draws.
    """

    def __init__(
        self,
        reader: StateReader,
        data: PackedDocuments,
        *,
        batch_size: int,
        length: int,
        margin: int,
        reuse: int,
        num_windows: int,
        seed: int,
    ) -> None:
        self._reader, self._data = reader, data
        self._batch_size, self._reuse, self._seed = batch_size, reuse, seed
        self._size = length + margin
        self._count = (data.window - 1) // length
        self._first = min(num_windows, 2 * batch_size * reuse)
        self._num_windows = num_windows
        self._num_read = 0
        self._tokens = torch.zeros(num_windows, data.window, dtype=torch.int32)
        self._states: Tensor | None = None

    def places(self, step: int) -> Tensor:
        """Return the places of a step's batch `[B, N, 2]`: kept window and start of each stretch."""
        self._read_up_to(self._first + step * self._batch_size // self._reuse)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        shape = (self._batch_size, self._count)
        num_kept = min(self._num_read, self._num_windows)
        kept = torch.randint(num_kept, shape, generator=generator)
        start = torch.randint(self._data.window - self._size, shape, generator=generator)
        return torch.stack((kept, start), -1)

    def at(self, places: Tensor) -> Stretches:
        """Return the S stretches at `places [..., 2]`."""
        assert self._states is not None
        kept, start = places.flatten(0, -2).unbind(-1)
        near = start[:, None] + torch.arange(self._size + 1)
        device = self._reader.target.device
        hidden = self._states[kept[:, None], near[:, :-1]].to(device)
        return Stretches(hidden, self._tokens[kept[:, None], near].long().to(device))

    def _read_up_to(self, num_windows: int) -> None:
        """Run the target on all unread windows before `num_windows` that stay in the buffer."""
        first = max(self._num_read, num_windows - self._num_windows)
        for number in range(first, num_windows):
            tokens = self._data.batch(number, 1)
            with autocast(self._reader.target.device.type):
                hidden = self._reader.read(tokens[:, :-1].to(self._reader.target.device)).hidden[0]
            if self._states is None:
                self._states = torch.empty(self._num_windows, *hidden.shape, dtype=matmul_dtype())
            slot = number % self._num_windows
            self._states[slot], self._tokens[slot] = hidden.cpu(), tokens[0].int()
        self._num_read = max(self._num_read, num_windows)
