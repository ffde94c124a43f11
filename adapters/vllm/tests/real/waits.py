"""Counts how often the adapter waits for a result of the device in a step of vLLM's V2 model runner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from specdec_vllm.v2.unread import UnreadStep

READS = ("tolist", "item", "cpu", "numpy", "nonzero", "__int__", "__bool__", "__float__", "__index__")
OURS = ("finish_requests", "add_requests", "update_requests", "sample_tokens")


class Waits:
    """What was counted since it was made; on the CPU any read of a tensor counts, as it would wait on a device.

    Args:
        runner: vLLM's, with a proposer.
    """

    def __init__(self, runner: Any) -> None:
        self.counts = Counter[str]()
        self._depths = [0]
        speculator = runner.speculator
        for name in OURS:
            setattr(speculator, f"_{name}", self._at(getattr(speculator, f"_{name}"), 0))
            setattr(runner, name, self._at(getattr(runner, name), 1))
        speculator.propose = self._at(speculator.propose, 1)
        hosted = speculator._hosted
        hosted.propose = self._at(hosted.propose, 0)  # its tensors are the host's, or it is a device's
        hosted.finish = self._at(hosted.finish, 0)

    def read(self, name: str) -> None:
        """Count a read, if the adapter makes it."""
        if self._depths[-1]:
            self.counts[name] += 1

    def _at(self, function: Callable[..., Any], depth: int) -> Callable[..., Any]:
        def called(*arguments: Any, **keys: Any) -> Any:
            self._depths.append(depth)
            try:
                return function(*arguments, **keys)
            finally:
                self._depths.pop()

        return called


_counting: list[Waits] = []


def count(worker: Any) -> str:
    """Begin to count in a worker; returns when its proposer is asked."""
    if not _counting:
        _patch()
    _counting[:] = [Waits(worker.model_runner)]
    return str(worker.model_runner.speculator._when)


def counted(worker: Any) -> dict[str, int]:
    """Return the reads by name, and how often the adapter waited for a step that vLLM had not waited for."""
    return dict(_counting[0].counts)


def _patch() -> None:
    for name in READS:
        stock = getattr(torch.Tensor, name)

        def reading(self: Any, *arguments: Any, _stock: Any = stock, _name: str = name, **keys: Any) -> Any:
            _counting[0].read(_name)
            return _stock(self, *arguments, **keys)

        setattr(torch.Tensor, name, reading)
    wait = UnreadStep.wait

    def waiting(step: UnreadStep) -> None:
        if step.output.model_runner_output.sampled_token_ids is None:
            _counting[0].counts["a step that vLLM has not read"] += 1
        wait(step)

    UnreadStep.wait = waiting  # type: ignore[method-assign]
