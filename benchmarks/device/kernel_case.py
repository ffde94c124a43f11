"""One operation, to be timed beside plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from device.sizes import Sizes
from specdec_kernels import Backend, use_backend

REFERENCE = "reference"


@dataclass(frozen=True)
class Problem:
    """Tensors, and what is done with them. Both calls return the same numbers and may be made any number of times."""

    call: Callable[[], Sequence[torch.Tensor]]
    """The operation, on the backend of its tensors."""
    num_bytes: int
    """What it reads and writes at least."""
    torch_call: Callable[[], Sequence[torch.Tensor]] | None = None
    """The same by an operation of torch; None takes the operation's own reference."""
    torch_name: str = REFERENCE
    """What `torch_call` is."""
    tolerance: float = 0.0
    """Most that the two may differ, relative to the largest number: roundings of another order of sums."""

    def by_torch(self) -> Sequence[torch.Tensor]:
        """Make the call of torch."""
        if self.torch_call is not None:
            return self.torch_call()
        with use_backend(Backend.REFERENCE):
            return self.call()


@dataclass(frozen=True)
class KernelCase:
    """An operation and how its problem is made."""

    op: str
    """Its folder in `specdec_kernels`."""
    name: str
    """What is measured, where an operation has several cases."""
    make: Callable[[Sizes], Problem]


def num_bytes(*tensors: torch.Tensor) -> int:
    """Return the bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
