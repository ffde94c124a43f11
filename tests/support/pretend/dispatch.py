"""Runs operations on device tensors by the rules of a device, and counts them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pretend.counts import Counts
from pretend.graphs import Tape
from pretend.tensor import CUDA, DeviceTensor, held

WAITING = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive", "bincount",
}  # fmt: skip
"""Operations whose result the host waits for: a number, or a size."""
FREE = {
    "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "detach", "alias",
    "lift_fresh", "is_pinned", "_unsafe_view",
}  # fmt: skip
"""Operations that launch nothing, besides views."""
WHOLE = {"linear", "matmul"}
"""Operations that are made of others and launch one kernel: taking them apart takes longer than they do."""
_POISON = 0x77
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class Captured(RuntimeError):
    """The host waited for the device, or sent it something, while a graph was captured."""


class Dispatcher(TorchDispatchMode):
    """The device while it is entered: sees every operation, also those that only make tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self.tape: Tape | None = None
        """The graph that is being captured; None if none is."""
        self.num_launched = 0
        self.compiled: set[tuple[object, ...]] = set()
        """Kernels by what they are compiled for."""
        self.arriving: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Places on the host that copies write to, and what they will hold, until the host waits."""
        self.pinned: set[int] = set()
        self._kept: list[torch.Tensor] = []

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a pinned copy of a host tensor."""
        copy = tensor.clone()
        self._kept.append(copy)  # so that its id is not another's
        self.pinned.add(id(copy))
        return copy

    def forget_pinned(self) -> None:
        """Forget the pinned tensors, which have been sent."""
        self._kept.clear()
        self.pinned.clear()

    def wait(self, what: str) -> None:
        """Count a synchronisation."""
        if self.tape is not None:
            raise Captured(f"CUDA error: operation not permitted when stream is capturing: {what}")
        self.counts.add("synchronisations", what)
        self.arrive(len(self.arriving))

    def arrive(self, count: int) -> None:
        """Complete the first copies to the host."""
        with torch._C._DisableTorchDispatch(), torch.inference_mode():
            for place, numbers in self.arriving[:count]:
                place.copy_(numbers)
        del self.arriving[:count]

    def compile(self, variant: tuple[object, ...]) -> None:
        """Count the compilation of a kernel, unless it has been compiled."""
        if variant not in self.compiled:
            self.compiled.add(variant)
            self.counts.add("compilations", str(variant))

    def launch(self, what: str) -> None:
        """Count a launch, unless it is captured."""
        if self.tape is None:
            self.counts.add("launches", what)
            self.num_launched += 1

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and being skipped costs more than many operations do

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation of torch, on the device if it concerns the device."""
        leaves = leaves_of(args, leaves_of(kwargs.values(), []))
        if not any(
            isinstance(leaf, DeviceTensor) or (isinstance(leaf, torch.device) and leaf.type == "cuda")
            for leaf in leaves
        ):
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name not in WHOLE and is_composite(func):  # inference mode hands them over whole
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if name == "_to_copy":
            return self._copied(func, args[0], kwargs)
        if name == "copy_":
            return self._copy(
                *args[:2], is_async=bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            )
        if name == "_fused_sdp_choice":
            return 0  # plain products
        self._check(name, func, args, kwargs, leaves)
        return self._launched(func, name, args, kwargs, leaves)

    def _check(self, name: str, func: Any, args: Any, kwargs: Any, leaves: list[Any]) -> None:
        """Raise where the device would, and count what the host waits for."""
        hosts = [
            leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor)
        ]
        if name in INDEXING:
            indices = [index for index in args[1] if index is not None]
            if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
                self.wait(f"{name} by a mask")
            sent = [index for index in indices if not isinstance(index, DeviceTensor)]
            for _ in sent:
                self.counts.add("copies_in", f"{name} by a host tensor")
                self.wait(f"{name} by a host tensor")
            hosts = [host for host in hosts if not any(host is index for index in sent)]
        if name.endswith("_like") and kwargs.get("device") is not None:
            hosts = []  # of which sizes alone are read
        if any(host.dim() for host in hosts):
            shapes = [list(host.shape) for host in hosts]
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({func}, {shapes})"
            )
        if name in WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.wait(name)

    def _launched(self, func: Any, name: str, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
        given, named = on_host(args), on_host(kwargs)
        named.pop("pin_memory", None)
        with torch._C._DisableTorchDispatch():
            run = HERE.get(name, func)
            out = run(*given, **named)
        made = [leaf for leaf in leaves_of((out,), []) if isinstance(leaf, torch.Tensor)]
        if name in WAITING and not made:
            return out
        if not is_view(func) and name not in FREE:
            if not made or any(tensor.numel() for tensor in made):
                self.launch(name)
            if self.tape is not None:
                self.tape.add(run, given, named, made)
        own = {id(leaf.held): leaf for leaf in leaves if isinstance(leaf, DeviceTensor)}

        def wrapped(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(wrapped, value))
            if not isinstance(value, torch.Tensor):
                return value
            same = own.get(id(value))
            if same is None:
                return DeviceTensor(value)
            assert same.shape == value.shape, f"{func} changes a tensor's shape in place"
            return same

        return wrapped(out)

    def _copied(self, func: Any, source: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
        device = kwargs.get("device")
        is_here, is_there = isinstance(source, DeviceTensor), isinstance(source, DeviceTensor)
        if device is not None:
            is_there = torch.device(device).type == "cuda"
        named = {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking", "pin_memory")}
        with torch._C._DisableTorchDispatch():
            out: torch.Tensor = func(held(source), **named)
        if is_here and is_there:
            if out.numel():
                self.launch("_to_copy")
            if self.tape is not None:
                self.tape.add(func, (held(source),), named, [out])
        else:
            self._moved(source, is_there, is_async=bool(kwargs.get("non_blocking")))
        return DeviceTensor(out) if is_there else out

    def _copy(self, place: torch.Tensor, source: torch.Tensor, *, is_async: bool) -> torch.Tensor:
        is_here, is_there = isinstance(source, DeviceTensor), isinstance(place, DeviceTensor)
        is_later = is_here and not is_there and is_async and id(place) in self.pinned
        with torch._C._DisableTorchDispatch():
            if is_later:
                self.arriving.append((place, held(source).clone()))
                place.view(torch.uint8).fill_(_POISON)
            else:
                held(place).copy_(held(source))
        if is_later:
            self.counts.add("copies_out", "copy")
            return place
        if is_here and is_there:
            if place.numel():
                self.launch("copy_")
            if self.tape is not None:
                self.tape.add(torch.Tensor.copy_, (held(place), held(source)), {}, [])
        elif is_there and source.dim() == 0:
            self.launch("fill_")
        else:
            self._moved(source, is_there, is_async=is_async)
        return place

    def _moved(self, source: torch.Tensor, is_there: bool, *, is_async: bool) -> None:
        """Count a copy between host and device. The host waits for one out, and for one in that is not asynchronous."""
        if not source.numel():
            return
        if self.tape is not None:
            raise Captured("CUDA error: a copy between host and device while a stream is capturing")
        self.counts.add(
            "copies_in" if is_there else "copies_out",
            "copy" if not is_there or id(source) in self.pinned else "copy, pageable",
        )
        if not is_there:
            self.wait("copy out")
        elif not is_async:
            self.wait("copy in")


def integer_histogram(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return `torch.histc` of integers, which a device has and the host has not."""
    return torch.histc(input.double(), *args, **kwargs).to(input.dtype)


HERE = {"histc": integer_histogram}
"""By name, what stands in for operations that the host does not have for all dtypes."""


def leaves_of(values: Any, found: list[Any]) -> list[Any]:
    """Append the values in arguments of an operation, also those in lists, to `found`; returns it."""
    for value in values:
        if isinstance(value, list | tuple):
            leaves_of(value, found)
        else:
            found.append(value)
    return found


def on_host(value: Any) -> Any:
    """Return an argument, or a collection of them, as the host's operation takes it."""
    if isinstance(value, DeviceTensor):
        return value.held
    if isinstance(value, list | tuple):
        return type(value)(map(on_host, value))
    if isinstance(value, dict):
        return {name: on_host(each) for name, each in value.items()}
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


@cache
def is_composite(func: Any) -> bool:
    """Return whether an operation is made of others on every device."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@cache
def is_view(func: Any) -> bool:
    """Return whether an operation returns a view of an argument."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


__all__ = ["CUDA", "Captured", "Dispatcher"]
