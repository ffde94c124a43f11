"""How many tokens the caches hold: what is free, less what a step needs besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil
import torch

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec.loading.target import TargetPlace
from specdec.runner.graphs import MAX_BYTES
from specdec.runner.model_runner import ModelRunner
from specdec.runner.packed import PackedBatch, Segment

_FLOAT32_COPIES = 2
"""Of the logits of a step, which samplers make: temperature and rules applied, and what is drawn from."""


def num_slots(
    options: EngineOptions,
    target: TargetPlace,
    bytes_per_token: int,
    needed: Callable[[], int],
    spread: Mapping[torch.device, int] | None = None,
) -> int:
    """Return how many tokens the caches hold: what fits, and no more than the batch can use.

    Args:
        options: what was asked for.
        target: where it is, and its longest context.
        bytes_per_token: over all caches.
        needed: tells the bytes of device memory that a step takes at most; called where it counts.
        spread: bytes per token on each device of a target that lies on several.

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
        return slots
    budget = options.kv_cache_memory_bytes
    if budget is None:
        budget = _budget(options, target.device, needed)
        for device, part in (spread or {}).items():
            if device.type == "cuda" and device != target.device:
                budget = min(budget, _available(options, device) * bytes_per_token // part)
    slots = min(per_sequence * options.max_num_seqs, budget // bytes_per_token // size * size)
    if slots < per_sequence:
        raise ConfigError(
            f"the KV cache has room for {slots} tokens ({budget / 2**20:.0f} MiB), less than max_model_len="
            f"{target.max_model_len}: lower max_model_len or raise kv_cache_memory_bytes"
        )
    return slots


def _budget(options: EngineOptions, device: torch.device, needed: Callable[[], int]) -> int:
    """Return the bytes that caches may take."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available) // 4
    taken = needed()
    return max(0, _available(options, device) - taken)


def _available(options: EngineOptions, device: torch.device) -> int:
    """Return the bytes of a CUDA device that may still be taken."""
    free, total = torch.cuda.mem_get_info(device)
    return int(max(0, free - (1 - options.gpu_memory_utilization) * total))


def step_bytes(runner: ModelRunner, options: EngineOptions, num_recorded: int) -> int:
    """Return the device memory that the largest step takes besides weights and caches, by running its pass once.

    Args:
        runner: of the target, its cache not yet made; it is left as it was but for that cache.
        options: say how many tokens a step may have.
        num_recorded: sets of recorded passes that there will be.

    Raises:
        ConfigError: if that pass does not fit.
    """
    batch = longest_pass(options.max_num_batched_tokens, runner.max_context, runner.device)
    try:
        runner.allocate(len(batch.token_ids))
        torch.cuda.synchronize(runner.device)
        torch.cuda.reset_peak_memory_stats(runner.device)
        before = torch.cuda.memory_allocated(runner.device)
        logits = runner.forward(batch).logits
        torch.cuda.synchronize(runner.device)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"LLM: a step of max_num_batched_tokens={options.max_num_batched_tokens} tokens does not fit beside the weights: "
            f"lower it ({str(error).split('. ')[0]})"
        ) from None
    peak = torch.cuda.max_memory_allocated(runner.device) - before
    copies = _FLOAT32_COPIES * logits.numel() * torch.float32.itemsize
    del logits
    runner.allocate(0)
    torch.cuda.empty_cache()
    return peak + copies + num_recorded * MAX_BYTES


def longest_pass(num_rows: int, max_context: int, device: torch.device) -> PackedBatch:
    """Return a pass of requests that are as long as they may be, all logits wanted, as when every row is verified.

    Args:
        num_rows: rows of the pass.
        max_context: the longest request, in tokens.
        device: where its tensors are.
    """
    slots = torch.arange(num_rows, device=device)
    segments = [
        Segment(row=start, num_rows=min(max_context, num_rows - start), first_slot=start, num_cached=0)
        for start in range(0, num_rows, max_context)
    ]
    return PackedBatch(torch.zeros_like(slots), slots % max_context, segments, slots, logits_rows=None)
