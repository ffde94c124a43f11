"""Log probabilities of emitted tokens as a Triton kernel: a program per token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, power_of_two

_MAX_BLOCK = 4096


@triton.jit(do_not_specialize=["nodes_stride", "token_ids_stride", "count"])
def list_logprobs_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    nodes_ptr: tl.tensor,
    nodes_stride: tl.tensor,
    token_ids_ptr: tl.tensor,
    token_ids_stride: tl.tensor,
    listed_ptr: tl.tensor,
    count: tl.tensor,
    out_ptr: tl.tensor,
    HAS_NODES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """List one token of one request: two passes over its row, and one for each of the most probable tokens."""
    request = tl.load(listed_ptr + tl.program_id(0)).to(tl.int64)
    step = tl.program_id(1)
    token = tl.load(token_ids_ptr + request * token_ids_stride + step).to(tl.int64)
    if token >= 0:
        node = step - 1
        if HAS_NODES:
            node = tl.load(nodes_ptr + request * nodes_stride + node, mask=step > 0, other=-1)
        row = tl.load(row_starts_ptr + request).to(tl.int64) + 1 + node
        row_ptr = logits_ptr + row * row_stride
        chosen = tl.load(row_ptr + token).to(tl.float32)
        best = tl.full((BLOCK_V,), -float("inf"), tl.float32)
        above = tl.zeros((BLOCK_V,), tl.int32)
        for start in range(0, vocab_size, BLOCK_V):
            ids = start + tl.arange(0, BLOCK_V)
            logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf")).to(tl.float32)
            best = tl.maximum(best, logits)
            above += (logits > chosen).to(tl.int32)
        most = tl.max(best, 0)
        total = tl.zeros((BLOCK_V,), tl.float32)
        for start in range(0, vocab_size, BLOCK_V):
            ids = start + tl.arange(0, BLOCK_V)
            logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf")).to(tl.float32)
            total += tl.exp(logits - most)
        rest = tl.log(tl.sum(total, 0))
        place = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + step) * (2 + 2 * count)
        tl.store(out_ptr + place, ((chosen - most) - rest).to(tl.float64))
        tl.store(out_ptr + place + 1, (tl.sum(above, 0) + 1).to(tl.float64))
        last = tl.full((), float("inf"), tl.float32)
        last_id = tl.full((), -1, tl.int32)
        for number in range(count):
            found = tl.full((), -float("inf"), tl.float32)
            found_id = tl.full((), -1, tl.int32)
            for start in range(0, vocab_size, BLOCK_V):
                ids = start + tl.arange(0, BLOCK_V)
                is_id = ids < vocab_size
                logits = tl.load(row_ptr + ids, mask=is_id, other=-float("inf")).to(tl.float32)
                is_left = is_id & ((logits < last) | ((logits == last) & (ids > last_id)))
                highest = tl.max(tl.where(is_left, logits, -float("inf")), 0)
                first = tl.min(tl.where(is_left & (logits == highest), ids, 2147483647), 0)
                is_better = (first < vocab_size) & ((found_id < 0) | (highest > found))
                found_id = tl.where(is_better, first, found_id)
                found = tl.where(is_better, highest, found)
            tl.store(out_ptr + place + 2 + number, ((found - most) - rest).to(tl.float64))
            tl.store(out_ptr + place + 2 + count + number, found_id.to(tl.float64))
            last = found
            last_id = found_id


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return how many ids the program of a row reads at once."""
    block = power_of_two(vocab_size, 16, _MAX_BLOCK)
    return LaunchConfig(block, 8 if block == _MAX_BLOCK else 2)


def list_logprobs_triton(
    logits: torch.Tensor,
    row_starts: torch.Tensor,
    nodes: torch.Tensor | None,
    token_ids: torch.Tensor,
    listed: torch.Tensor,
    count: int,
    out: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes `out`."""
    config = config or heuristic(logits.shape[1])
    links = token_ids if nodes is None else nodes  # not read for chains
    list_logprobs_kernel[(len(listed), token_ids.shape[1])](
        logits,
        logits.stride(0),
        logits.shape[1],
        row_starts,
        links,
        links.stride(0),
        token_ids,
        token_ids.stride(0),
        listed,
        count,
        out,
        HAS_NODES=nodes is not None,
        BLOCK_V=config.block,
        num_warps=config.num_warps,
    )
