"""A tensor that says it is on the device; its numbers are in a tensor on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

CUDA = torch.device("cuda", 0)
_CUDA, _META = 1, 14
"""Values of `c10::DeviceType`."""

Dispatch = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class DeviceTensor(torch.Tensor):
    """Sizes, strides and dtype are those of `held`; device is `cuda:0`."""

    held: torch.Tensor
    dispatch: ClassVar[Dispatch | None] = None
    """What runs an operation that is called while no device is entered."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> DeviceTensor:
        guard = torch._C._InferenceMode(False)  # an inference tensor could not be a view of one that is none
        try:
            made: DeviceTensor = torch.Tensor._make_wrapper_subclass(
                cls,
                held.size(),
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=CUDA,
            )
        finally:
            del guard
        made.held = held
        return made

    @property
    def data(self) -> torch.Tensor:
        """The same numbers."""
        return self.detach()

    @data.setter
    def data(self, other: DeviceTensor) -> None:
        assert other.held.shape == self.held.shape
        assert other.dtype == self.dtype
        self.held = other.held

    def data_ptr(self) -> int:
        """Return the address of the host's tensor, which differs for different tensors as a device's does."""
        return self.held.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage of the host's tensor."""
        return self.held.untyped_storage()

    def tolist(self) -> Any:
        """Return the numbers, for which the host waits."""
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if cls.dispatch is None:
            raise RuntimeError(f"{func} on a tensor of a device that is gone")
        return cls.dispatch(func, args, kwargs or {})


def held(value: Any) -> Any:
    """Return the host's tensor of a device tensor, and anything else as it is."""
    return value.held if isinstance(value, DeviceTensor) else value


def allow_cuda_tensors() -> None:
    """Let torch index tensors that say `cuda:0` in a build that has no guard for such devices, or none that finds one.

    Builds without CUDA have no guard for it; the one for `meta` does nothing, which is all that is needed.
    """
    torch._C._ensureCUDADeviceGuardSet()
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[_CUDA] = guards[_CUDA] or guards[_META]
