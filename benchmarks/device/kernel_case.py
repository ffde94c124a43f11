"""One operation to time against plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from device.sizes import Sizes
from specdec_kernels.triton import Backend, use_backend

REFERENCE = "reference"


@dataclass(frozen=True)
class Problem:
    """Two equivalent calls on the same tensors. Both return the same numbers and may be repeated."""

    call: Callable[[], Sequence[torch.Tensor]]
    """The operation, on the backend of its tensors."""
    num_bytes: int
    """Minimum bytes read and written."""
    torch_call: Callable[[], Sequence[torch.Tensor]] | None = None
    """The equivalent torch operation; None uses the operation's own reference."""
    torch_name: str = REFERENCE
    """Name of `torch_call`."""
    tolerance: float = 0.0
    """Maximum difference relative to the largest number, from rounding in a different summation order."""

    def by_torch(self) -> Sequence[torch.Tensor]:
        """Run the torch call."""
        if self.torch_call is not None:
            return self.torch_call()
        with use_backend(Backend.REFERENCE):
            return self.call()


@dataclass(frozen=True)
class KernelCase:
    """An operation and the function that makes its problem."""

    op: str
    """Its folder in `specdec_kernels`."""
    name: str
    """Name of the case; an operation may have several."""
    make: Callable[[Sizes], Problem]


def num_bytes(*tensors: torch.Tensor) -> int:
    """Return the total bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
