"""Numbers on their way from a device to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class AsyncCopy:
    """A copy of a device's tensor, which arrives as soon as what was launched before it is done, whatever is launched later.

    Args:
        tensor: what is copied, as it is now.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._there = tensor
        if tensor.device.type == "cuda":
            self._there = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
            self._there.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.current_stream(tensor.device).record_event()

    def read(self) -> npt.NDArray[Any]:
        """Return the numbers; waits for them."""
        if self._event is not None:
            self._event.synchronize()
        numbers: npt.NDArray[np.generic] = self._there.numpy()
        return numbers
