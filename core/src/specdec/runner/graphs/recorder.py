"""Records the operations of a function on a device once, to run them again as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded function of no arguments: it reads and writes the tensors it was recorded with."""

    replay: Callable[[], None]
    """Runs it again."""
    outputs: Tensors
    """What it returned; written anew by each replay."""
    num_bytes: int
    """Device memory that it holds."""


class Recorder(Protocol):
    """Makes recordings on one device."""

    def record(self, function: Callable[[], Tensors]) -> Recording:
        """Record a function that has run before, so that nothing is left to compile.

        Raises:
            RuntimeError: if it does what cannot be recorded, such as waiting for the device.
        """


class CudaRecorder:
    """Records CUDA graphs, which share one pool of memory: they run one after another.

    Args:
        device: the CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None  # an opaque handle of torch's
        self._side: torch.cuda.Stream | None = None

    def record(self, function: Callable[[], Tensors]) -> Recording:
        """See `Recorder.record`."""
        with torch.cuda.device(self._device):
            # A run on a side stream first, as capture wants it: libraries set up their workspaces there.
            if self._side is None:
                self._side = torch.cuda.Stream()
            current = torch.cuda.current_stream()
            self._side.wait_stream(current)
            with torch.cuda.stream(self._side):
                function()
            current.wait_stream(self._side)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # capture begins so; what is reserved then is what the recording holds
            before = torch.cuda.memory_reserved()
            graph = torch.cuda.CUDAGraph()
            # Entered again from outside: a capture that fails leaves its own stream as the current one.
            with (
                torch.cuda.stream(current),
                torch.cuda.graph(
                    graph, pool=self._pool, stream=self._side, capture_error_mode="thread_local"
                ),
            ):
                outputs = function()
            if self._pool is None:
                self._pool = graph.pool()
            grown = torch.cuda.memory_reserved() - before
            return Recording(graph.replay, outputs, max(grown, sum(output.nbytes for output in outputs)))
