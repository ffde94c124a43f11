"""Times the bare forward pass during the run, on the batches that the engine scores."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch


class ForwardProbe:
    """Runs every n-th pass a second time and measures its time.

    Assign it to `Scorer.on_pass`. The second run writes the same keys and values to the same cache rows before
    the step is committed, so it does not affect the engine. Its time is excluded from all
    other numbers.

    Args:
        device: the device the passes run on.
        every: n. The second pass of each n is measured, because the first pass of a run is a prefill.
    """

    def __init__(self, device: torch.device, every: int = 8) -> None:
        self._device = device
        self._every = every
        self._num_passes = 0
        self.last_ms: float | None = None
        """Time of the latest pass, or None if it ran only once."""
        self.total_s = 0.0
        """Total time of all second runs."""

    def __call__(self, run_again: Callable[[], object]) -> None:
        """Count one pass, and run it again if it is to be timed."""
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
