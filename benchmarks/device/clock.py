"""Times calls; on a GPU with the device's own clock."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

_FLUSHED_BYTES = 256 * 2**20
"""Larger than any second-level cache."""
_WARM_UP_CALLS = 3


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all queued work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def best_ms(call: Callable[[], object], device: torch.device, num_calls: int = 20) -> float:
    """Return the shortest time of a call."""
    return min(times_ms(call, device, num_calls))


def median_ms(call: Callable[[], object], device: torch.device, num_calls: int) -> float:
    """Return the median time of a call."""
    return median(times_ms(call, device, num_calls))


def times_ms(call: Callable[[], object], device: torch.device, num_calls: int) -> list[float]:
    """Return the time of each call, after a few warm-up calls.

    On a GPU this is the time between two events in its stream, with the cache flushed before each call. The flush also keeps
    the GPU busy while a kernel is launched, so the time of a call that is one kernel excludes the launch.
    """
    for _ in range(_WARM_UP_CALLS):
        call()
    if device.type != "cuda":
        return [_host_ms(call, device) for _ in range(num_calls)]
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device=device)
    events = []
    for _ in range(num_calls):
        flushed.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        events.append((start, end))
    synchronize(device)
    return [start.elapsed_time(end) for start, end in events]


def _host_ms(call: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    start = perf_counter()
    call()
    synchronize(device)
    return 1e3 * (perf_counter() - start)
