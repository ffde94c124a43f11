"""Size of the KV caches: free memory less what a step needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil
import torch

from specdec import EngineOptions
from specdec.errors import ConfigError
from specdec_runtime.interfaces.forward import PackedBatch, Segment
from specdec_runtime.loading.target import TargetLocation
from specdec_runtime.runner import ModuleRunner

_FLOAT32_COPIES = 2
"""Copies of a step's logits that samplers make: with temperature and rules applied, and to draw from."""


def num_slots(
    options: EngineOptions,
    target: TargetLocation,
    bytes_per_token: int,
    needed: Callable[[], int],
    spread: Mapping[torch.device, int] | None = None,
    reserve: Callable[[int | None], int] = lambda _: 0,
) -> int:
    """Return the number of cache slots: as many as fit, and no more than the batch can use.

    Args:
        options: the engine's options.
        target: its device and maximum context length.
        bytes_per_token: sum over all caches.
        needed: returns the maximum device memory of a step, in bytes; called only on GPUs.
        spread: bytes per token on each device, for a target on several devices.
        reserve: allocates what is not per token, for which it is given the budget in bytes, None if the number of slots is an
            option; returns the bytes it takes.

    Raises:
        ConfigError: if one sequence does not fit.
    """
    size = options.block_size
    per_sequence = -(-(target.max_model_len + 1) // size) * size
    if options.num_gpu_blocks_override is not None:
        slots = options.num_gpu_blocks_override * size
        if slots < per_sequence:
            raise ConfigError(
                f"LLM: num_gpu_blocks_override={options.num_gpu_blocks_override} blocks of {size} tokens are less than "
                f"max_model_len={target.max_model_len}: lower max_model_len or raise it to {per_sequence // size}"
            )
        reserve(None)
        return slots
    budget = options.kv_cache_memory_bytes
    if budget is None:
        if target.device.type == "cuda":
            taken = needed()
            budget = max(0, _available(options, target.device) - taken)
        else:
            budget = int(psutil.virtual_memory().available) // 4
        for device, part in (spread or {}).items():
            if device.type == "cuda" and device != target.device:
                budget = min(budget, _available(options, device) * bytes_per_token // part)
    budget -= reserve(budget)
    slots = min(per_sequence * options.max_num_seqs, budget // max(1, bytes_per_token) // size * size)
    if slots < per_sequence:
        raise ConfigError(
            f"the KV cache has room for {slots} tokens ({budget / 2**20:.0f} MiB), less than max_model_len="
            f"{target.max_model_len}: lower max_model_len or raise kv_cache_memory_bytes"
        )
    return slots


def _available(options: EngineOptions, device: torch.device) -> int:
    """Return the bytes of a CUDA device that this process may still take: what other processes hold is not counted."""
    free, total = torch.cuda.mem_get_info(device)
    own = options.gpu_memory_utilization * total - torch.cuda.memory_allocated(device)
    return int(max(0.0, min(own, options.gpu_memory_utilization * free)))


def step_bytes(
    runner: ModuleRunner, options: EngineOptions, reserved_bytes: int, max_logits_rows: int | None = None
) -> int:
    """Return the device memory of the largest step without weights and caches; runs its pass once.

    Args:
        runner: the target's runner, before its cache is allocated; only that cache is changed.
        options: the engine's options, with the token budget of a step.
        reserved_bytes: what the forms of all runners may take later.
        max_logits_rows: most rows whose logits a step needs; None for all.

    Raises:
        ConfigError: if that pass does not fit.
    """
    size = options.max_num_batched_tokens
    batch = longest_pass(size, runner.max_context, runner.device, max_logits_rows)
    try:
        runner.allocate(len(batch.token_ids))
        torch.cuda.synchronize(runner.device)
        torch.cuda.reset_peak_memory_stats(runner.device)
        before = torch.cuda.memory_allocated(runner.device)
        logits = runner.forward(batch).logits
        torch.cuda.synchronize(runner.device)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"LLM: a step of max_num_batched_tokens={size} tokens does not fit beside the weights: "
            f"lower it ({str(error).split('. ')[0]})"
        ) from None
    peak = torch.cuda.max_memory_allocated(runner.device) - before
    copies = logits_bytes(logits.numel())
    del logits
    runner.allocate(0)
    torch.cuda.empty_cache()
    return peak + copies + reserved_bytes


def logits_bytes(count: int) -> int:
    """Return the bytes of the copies of so many logits."""
    return _FLOAT32_COPIES * count * torch.float32.itemsize


def longest_pass(
    num_rows: int, max_context: int, device: torch.device, max_logits_rows: int | None = None
) -> PackedBatch:
    """Return a pass of requests of maximum length, with as many logits as a step may need.

    Args:
        num_rows: rows of the pass.
        max_context: maximum length of a request, in tokens.
        device: where its tensors are.
        max_logits_rows: most rows whose logits are needed; None for all.
    """
    slots = torch.arange(num_rows, device=device)
    segments = [
        Segment(row=start, num_rows=min(max_context, num_rows - start), first_slot=start, num_cached=0)
        for start in range(0, num_rows, max_context)
    ]
    wanted = None if max_logits_rows is None or max_logits_rows >= num_rows else slots[-max_logits_rows:]
    return PackedBatch(torch.zeros_like(slots), slots % max_context, segments, slots, logits_rows=wanted)
