"""A function over rows of states that is recorded for a few numbers of rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch

from specdec.interfaces import done_once
from specdec_kernels.cuda.graphs.pass_shape import MAX_ROWS, sizes_for
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.recordings import Graphs
from specdec_kernels.cuda.graphs.static_pass import copy_in
from specdec_kernels.cuda.paged_pass import Int64s

RunRows = Callable[[Tensors, torch.Tensor], None]
"""Reads states, each `[S, H]`, and numbers `[N, T]` int64 of T rows, among them their rows of the states. Padding repeats the
last one, so what is done twice must be as if done once."""


class StaticRows:
    """States and numbers at fixed addresses.

    Args:
        states: `[A, S, H]`.
        num_numbers: N.
    """

    def __init__(self, states: torch.Tensor, num_numbers: int) -> None:
        self.states = states.unbind()
        self.numbers = torch.zeros((num_numbers, states.shape[1]), dtype=torch.int64, device=states.device)

    @property
    def num_bytes(self) -> int:
        """Memory of its own tensors."""
        return self.numbers.nbytes

    def send(self, states: Tensors, numbers: Int64s) -> None:
        """Send states by one launch and numbers, padded, by one transfer."""
        num_more = self.numbers.shape[1] - numbers.shape[1]
        copy_in(self.numbers, torch.from_numpy(np.pad(numbers, ((0, 0), (0, num_more)), "edge")))
        torch._foreach_copy_(
            [place[: len(own)] for place, own in zip(self.states, states, strict=True)], list(states)
        )


class RowGraphs(Graphs[StaticRows]):
    """Runs a function on rows with one recording per number of rows, all made when the engine is loaded.

    Args:
        what: what it does, for the warning if recording fails.
        run: the function.
        recorder: the device's recorder.
        states: `[A, H]`, for sizes, dtype and device.
        num_numbers: N.
    """

    def __init__(
        self, what: str, run: RunRows, recorder: Recorder, states: torch.Tensor, num_numbers: int
    ) -> None:
        super().__init__(what)
        self._run, self._recorder, self._like, self._num_numbers = run, recorder, states, num_numbers
        self._sizes: list[int] = []

    def prepare(self, num_rows: int) -> None:
        """Record the function for up to so many rows, or `MAX_ROWS`; it runs on zeros."""
        self._sizes = sizes_for(min(num_rows, MAX_ROWS))
        count, width = self._like.shape
        states = self._like.new_zeros(count, self._sizes[-1], width)
        for size in self._sizes:
            if self.failure is None:
                self._record(size, StaticRows(states[:, :size], self._num_numbers))

    def run(self, states: Tensors, numbers: Int64s) -> bool:
        """Run the function on states, each `[S, H]`, and numbers `[N, T]`, T > 0; False if there is no recording for it."""
        num_rows = max(len(states[0]), numbers.shape[1])
        fitting = (self._recordings.find(size) for size in self._sizes if size >= num_rows)
        found = next(filter(None, fitting), None)
        if found is None:
            self.num_plain += 1
            return False
        found[0].send(states, numbers)
        found[1].replay()
        self.num_replays += 1
        return True

    def _record(self, size: int, static: StaticRows) -> None:
        device = self._like.device

        def run() -> Tensors:
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                self._run(static.states, static.numbers)
            return ()

        with done_once():
            try:
                run()
                self._recordings.keep(size, static, self._recorder.record(run))
            except Exception as error:  # not recordable, or out of device memory
                self._recordings.fail(f"{type(error).__name__}: {error}")
