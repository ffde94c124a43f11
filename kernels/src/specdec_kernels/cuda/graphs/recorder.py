"""Captures CUDA graphs: the device operations of a function, recorded once and replayed as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded function without arguments, which reads and writes the tensors it was recorded with."""

    replay: Callable[[], None]
    """Replays the function."""
    outputs: Tensors
    """The outputs of the function; overwritten by each replay."""
    num_bytes: int
    """Device memory that the recording holds."""


class Recorder(Protocol):
    """Makes recordings on one device."""

    def record(self, function: Callable[[], Tensors]) -> Recording:
        """Record a function that has already run, so that nothing is left to compile.

        Raises:
            RuntimeError: if the function cannot be recorded, for example because it waits for the device.
        """


class CudaRecorder:
    """Records CUDA graphs; they share one memory pool, because they run one after another.

    Args:
        device: the CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None  # an opaque handle of torch's
        self._side: torch.cuda.Stream | None = None

    def record(self, function: Callable[[], Tensors]) -> Recording:
        """Record a function that has already run."""
        with torch.cuda.device(self._device):
            # Capture needs a warm-up run on a side stream first: libraries set up their workspaces there.
            if self._side is None:
                self._side = torch.cuda.Stream()
            current = torch.cuda.current_stream()
            self._side.wait_stream(current)
            with torch.cuda.stream(self._side):
                function()
            current.wait_stream(self._side)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # capture does this first; memory reserved after it belongs to the recording
            before = torch.cuda.memory_reserved()
            graph = torch.cuda.CUDAGraph()
            # Re-entering `current` restores it: a capture that fails leaves its own stream as the current one.
            with (
                torch.cuda.stream(current),
                torch.cuda.graph(
                    graph, pool=self._pool, stream=self._side, capture_error_mode="thread_local"
                ),
            ):
                outputs = function()
            if self._pool is None:
                self._pool = graph.pool()
            return Recording(graph.replay, outputs, torch.cuda.memory_reserved() - before)
