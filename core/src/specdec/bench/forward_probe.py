"""Times the bare forward pass, in the run, on the very batches that the engine scores."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch


class ForwardProbe:
    """Runs every n-th pass a second time, alone, and takes its time.

    Hang it into `Scorer.on_pass`. A second run writes the same keys and values to the same cache rows, before
    anything of the step is committed, so the engine does not notice; the time it takes is left out of all
    other numbers.

    Args:
        device: where the passes run.
        every: n. The second pass of each n is taken, since the first one of a run is a prompt's.
    """

    def __init__(self, device: torch.device, every: int = 8) -> None:
        self._device = device
        self._every = every
        self._num_passes = 0
        self.last_ms: float | None = None
        """Time of the latest pass, or None if it was run only once."""
        self.total_s = 0.0
        """Time that all second runs took."""

    def __call__(self, run_again: Callable[[], object]) -> None:
        """Take note of one pass, and maybe run it again."""
        self._num_passes += 1
        self.last_ms = None
        if self._num_passes % self._every != min(2, self._every) % self._every:
            return
        self._wait()
        started = perf_counter()
        run_again()
        self._wait()
        seconds = perf_counter() - started
        self.last_ms = 1e3 * seconds
        self.total_s += seconds

    def _wait(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
