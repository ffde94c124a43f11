"""Requests with a seed whose prompt comes in pieces, on CPUs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdec_vllm.generators import Rewinding


class StubRunner:
    """vLLM's runner: draws for every row, then moves the generators of unfinished prompts back by their offset."""

    def __init__(self) -> None:
        generators = {row: torch.Generator().manual_seed(row) for row in (0, 1)}
        self.input_batch = SimpleNamespace(num_reqs=3, generators=generators)
        self.discard_request_mask = SimpleNamespace(np=np.array([True, False, True, True]))

    def _sample(self, count: int) -> list[float]:
        return [float(torch.rand(count, generator=g).sum()) for g in self.input_batch.generators.values()]

    def _bookkeeping_sync(self) -> list[int]:
        for row in np.nonzero(self.discard_request_mask.np[:3])[0]:
            generator = self.input_batch.generators.get(int(row))
            if generator is not None:
                generator.set_offset(generator.get_offset() - 4)
        return sorted(self.input_batch.generators)


def test_unfinished_prompts_draw_nothing() -> None:
    runner = StubRunner()
    with pytest.raises(RuntimeError, match="does not use offset"):
        runner._bookkeeping_sync()
    Rewinding(runner).attach()
    first, second = runner._sample(2), runner._sample(count=2)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert runner._bookkeeping_sync() == [1]
    assert sorted(runner.input_batch.generators) == [0, 1]


def test_errors_leave_the_generators_there() -> None:
    runner = StubRunner()
    runner._bookkeeping_sync = lambda: 1 / 0  # type: ignore[method-assign]
    Rewinding(runner).attach()
    with pytest.raises(ZeroDivisionError):
        runner._bookkeeping_sync()
    assert sorted(runner.input_batch.generators) == [0, 1]
