"""Enters the pretend device: `torch.cuda` says that there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from pretend.counts import Counts
from pretend.dispatch import Dispatcher
from pretend.graphs import Tape
from pretend.kernels import kernels
from pretend.tensor import DeviceTensor, allow_cuda_tensors
from specdec.engine.containment import draft as drafts
from specdec_kernels.cuda.graphs import pass_shape
from specdec_kernels.cuda.graphs.recorder import CudaRecorder, Recording, Tensors
from specdec_kernels.layers.structure import layer_parts, model_parts

NAME = "Pretend device"
MEMORY = 2**36
PROPERTIES = SimpleNamespace(name=NAME, total_memory=MEMORY, multi_processor_count=132, major=9, minor=0)
"""Sizes of a large GPU: they decide how kernels divide their work."""

MAX_PROMPT_ROWS = 192
"""Its graphs keep all that they compute, and longer ones would take gigabytes."""


class PretendDevice:
    """A CUDA device without a GPU; enter it to use it.

    Tensors on it are host tensors that say `cuda:0`. Operations raise if they mix devices, if the host reads a device tensor
    without a copy, or if the host waits while a graph is captured. Graphs replay recorded operations at the same addresses.
    Arithmetic is the host's. Streams, memory pools and the kernels themselves are not imitated.
    """

    def __init__(self) -> None:
        self._dispatcher = Dispatcher()
        self._open = ExitStack()

    def counted(self) -> Counts:
        """Return what was counted since the last call, and begin anew."""
        counts, self._dispatcher.counts = self._dispatcher.counts, Counts()
        self._dispatcher.forget_pinned()
        return counts

    def forget_compiled(self) -> None:
        """Have every kernel compiled anew, as a new process on a new machine has."""
        self._dispatcher.compiled.clear()

    def __enter__(self) -> PretendDevice:
        import_module("transformers.generation.continuous_batching")  # which names types of `torch.cuda`
        allow_cuda_tensors()
        with ExitStack() as opening:
            for owner, name, value in self._replacements():
                opening.enter_context(patch.object(owner, name, value))
            opening.enter_context(kernels(self._dispatcher))
            # transformers reads weights in this thread then: no other one sees the dispatcher
            opening.enter_context(patch.dict(os.environ, {"HF_DEACTIVATE_ASYNC_LOAD": "1"}))
            torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor then makes host tensors, and sends them
            opening.callback(torch._C._set_only_lift_cpu_tensors, False)
            DeviceTensor.dispatch = self._dispatcher.run
            opening.enter_context(self._dispatcher)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        DeviceTensor.dispatch = None

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        device, cuda = self._dispatcher, torch.cuda
        return [
            (cuda, "_lazy_init", lambda: None),
            (cuda, "is_available", lambda: True),
            (cuda, "device_count", lambda: 1),
            (cuda, "current_device", lambda: 0),
            (cuda, "device", lambda _: nullcontext()),
            (cuda, "get_device_name", lambda *_: NAME),
            (cuda, "get_device_capability", lambda *_: (PROPERTIES.major, PROPERTIES.minor)),
            (cuda, "get_device_properties", lambda *_: PROPERTIES),
            (cuda, "mem_get_info", lambda *_: (MEMORY, MEMORY)),
            *(
                (cuda, name, lambda *_: 0)
                for name in ("memory_allocated", "max_memory_allocated", "memory_reserved")
            ),
            *((cuda, name, lambda *_: None) for name in ("empty_cache", "reset_peak_memory_stats")),
            (cuda, "synchronize", lambda *_: device.wait("synchronize")),
            (cuda, "Stream", lambda: Stream(device)),
            (cuda, "current_stream", lambda *_: Stream(device)),
            (cuda, "stream", lambda _: nullcontext()),
            (cuda, "CUDAGraph", lambda: Graph(device)),
            (cuda, "graph", capture),
            (cuda, "is_current_stream_capturing", lambda: device.tape is not None),
            (model_parts, "__defaults__", (is_plain_linear,)),
            (layer_parts, "__defaults__", (is_plain_linear,)),
            (drafts, "_KINDS", (*drafts._KINDS, DeviceTensor)),
            (pass_shape, "MAX_PROMPT_ROWS", MAX_PROMPT_ROWS),
            (CudaRecorder, "record", _recording_at_once(CudaRecorder.record)),
            (torch.Tensor, "pin_memory", lambda tensor, *_: device.pin(tensor)),
            (nn.Module, "to", _moving(nn.Module.to)),
        ]


def is_plain_linear(module: nn.Module | None) -> bool:
    """Return whether a module is a plain `nn.Linear`, also if its weights are on the pretend device."""
    return type(module) is nn.Linear and module.weight.is_floating_point()


class Stream:
    """A stream: work on the pretend device is done in order, so there is nothing to wait for.

    Args:
        device: whose it is.
    """

    def __init__(self, device: Dispatcher) -> None:
        self._device = device

    def wait_stream(self, other: Stream) -> None:
        """Do nothing."""

    def record_event(self) -> Event:
        """Return an event behind all that was launched."""
        return Event(self._device)


class Event:
    """The end of what was launched before it was made.

    Args:
        device: where it is.
    """

    def __init__(self, device: Dispatcher) -> None:
        self._device = device
        self._num_launched, self._numbers = device.num_launched, list(device.arriving)

    def synchronize(self) -> None:
        """Wait for it: copies before it have then arrived, and no later ones."""
        device = self._device
        device.counts.add("synchronisations", "event")
        device.counts.ahead += device.num_launched - self._num_launched
        device.arrive(sum(any(copy is own for own in self._numbers) for copy in device.arriving))


class Graph:
    """A captured graph.

    Args:
        device: the device that captures it.
    """

    def __init__(self, device: Dispatcher) -> None:
        self.device = device
        self.tape = Tape()

    def pool(self) -> int:
        """Return a name of its memory."""
        return id(self)

    def replay(self) -> None:
        """Run the recorded operations."""
        self.device.launch("graph")
        self.device.counts.replays += 1
        with torch._C._DisableTorchDispatch():
            self.tape.play()


@contextmanager
def capture(graph: Graph, **_: Any) -> Iterator[None]:
    """Record the operations of the block."""
    device = graph.device
    device.counts.recordings += 1
    device.tape = graph.tape
    try:
        yield
    finally:
        device.tape = None


def _recording_at_once(
    record: Callable[[CudaRecorder, Callable[[], Tensors]], Recording],
) -> Callable[[CudaRecorder, Callable[[], Tensors]], Recording]:
    """Return `CudaRecorder.record` without its first run, for which no library here has a workspace to set up."""

    def recorded(recorder: CudaRecorder, function: Callable[[], Tensors]) -> Recording:
        return record(recorder, lambda: function() if torch.cuda.is_current_stream_capturing() else ())

    return recorded


def _moving(to: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return `Module.to` with tensors that several modules share still shared, as on a real device."""

    def moved(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "cuda":
            return to(module, *args, **kwargs)
        made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in made:
                        kind = dtype if tensor.is_floating_point() else None
                        placed = tensor.detach().to(device, kind)
                        is_weight = isinstance(tensor, nn.Parameter)
                        made[id(tensor)] = (
                            tensor,
                            nn.Parameter(placed, requires_grad=False) if is_weight else placed,
                        )
                    tensors[name] = made[id(tensor)][1]
        return module

    return moved
