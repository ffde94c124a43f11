"""What steps ask of a device, by torch's profiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any

from torch.profiler import ProfilerActivity, profile

_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_EVENTS = {
    **dict.fromkeys(_LAUNCHES, "launches"),
    "cudaGraphLaunch": "graphs",
    "cudaMemcpyAsync": "copies",
    "cudaStreamSynchronize": "syncs",
    "cudaEventSynchronize": "syncs",
    "cudaDeviceSynchronize": "syncs",
}
"""What the profiler calls the calls that are counted."""
_MOST_NAMES = 20


def profiled(steps: Callable[[], object], num_steps: int, *, is_cuda: bool) -> dict[str, Any]:
    """Run steps under the profiler.

    Args:
        steps: runs them, and waits for the device.
        num_steps: how many it runs.
        is_cuda: whether they run on a CUDA device; elsewhere the times are those of operations on the host.

    Returns:
        Of a step: milliseconds of the clock and of the device, counted calls, and milliseconds by kernel, the longest first.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities) as profiler:
        started = perf_counter()
        steps()
        seconds = perf_counter() - started
    calls, times = Counter[str](), Counter[str]()
    for event in profiler.key_averages():
        if event.key in _EVENTS:
            calls[_EVENTS[event.key]] += event.count
        taken = event.self_device_time_total if is_cuda else event.self_cpu_time_total
        times[event.key[:120]] += taken / 1e3 / num_steps
    return {
        "wall_ms": 1e3 * seconds / num_steps,
        "busy_ms": sum(times.values()),
        "calls": {name: number / num_steps for name, number in sorted(calls.items())},
        "kernels": {name: taken for name, taken in times.most_common(_MOST_NAMES) if taken},
    }
