"""Workaround for a crash of vLLM on CPUs: seeded requests with chunked prefill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Rewinding:
    """Undoes the draws for requests with unfinished prompts, for which nothing is emitted.

    vLLM (0.32) uses the generator's offset for this, which CPU generators do not have: "CPU Generator does not use offset"
    ends the engine. Here the generator's state is restored after the draw, and these generators are hidden from vLLM's
    bookkeeping.

    Args:
        runner: vLLM's CPU model runner.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._sample: Callable[..., Any] = runner._sample
        self._bookkeeping: Callable[..., Any] = runner._bookkeeping_sync

    def attach(self) -> None:
        """Wrap the runner's two functions."""
        self._runner._sample = self.sample
        self._runner._bookkeeping_sync = self.bookkeeping_sync

    def sample(self, *arguments: Any, **keys: Any) -> Any:
        """Sample as vLLM does, leaving the generators of unfinished prompts unchanged."""
        kept = {row: generator.get_state() for row, generator in self._unfinished().items()}
        sampled = self._sample(*arguments, **keys)
        for row, state in kept.items():
            self._runner.input_batch.generators[row].set_state(state)
        return sampled

    def bookkeeping_sync(self, *arguments: Any, **keys: Any) -> Any:
        """Run vLLM's bookkeeping without these generators."""
        unfinished = self._unfinished()
        generators = self._runner.input_batch.generators
        for row in unfinished:
            del generators[row]
        try:
            return self._bookkeeping(*arguments, **keys)
        finally:
            generators.update(unfinished)

    def _unfinished(self) -> dict[int, torch.Generator]:
        batch = self._runner.input_batch
        rows = np.nonzero(self._runner.discard_request_mask.np[: batch.num_reqs])[0].tolist()
        return {row: batch.generators[row] for row in rows if row in batch.generators}
