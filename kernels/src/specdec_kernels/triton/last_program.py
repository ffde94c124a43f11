"""Programs of one kernel that count themselves, so that the last one goes on with what all of them wrote."""

from __future__ import annotations

import threading

import torch
import triton
import triton.language as tl

_LEAST_COUNTS = 256


class _Kept(threading.local):
    """A thread's counters of programs, by device."""

    def __init__(self) -> None:
        self.by_device: dict[torch.device, torch.Tensor] = {}


_KEPT = _Kept()


@triton.jit
def is_last_program(count_ptr: tl.tensor, num_programs: tl.tensor) -> tl.tensor:
    """Return whether this is the last of some programs that ask; all that they stored before can then be loaded.

    The count is 0 before the first and after the last of them.
    """
    tl.debug_barrier()  # all threads have stored before one of them counts the program
    is_last = 1 + tl.atomic_add(count_ptr, 1, sem="acq_rel", scope="gpu") == num_programs
    if is_last:
        tl.store(count_ptr, 0)
    return is_last


def arrival_counts(count: int, device: torch.device) -> torch.Tensor:
    """Return a thread's zeros, which launches on its stream use one after another, and leave as they are."""
    kept = _KEPT.by_device.get(device)
    if kept is None or len(kept) < count:
        kept = _KEPT.by_device[device] = torch.zeros(
            max(count, _LEAST_COUNTS), dtype=torch.int32, device=device
        )
    return kept
