"""The tokens of a verdict behind the committed ones as a Triton kernel: one program for each request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, roomy


@triton.jit(do_not_specialize=["width", "num_columns"])
def append_tokens_kernel(
    table_ptr: tl.tensor,
    num_tokens_ptr: tl.tensor,
    lines_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    width: tl.tensor,
    num_columns: tl.tensor,
    BLOCK_N: tl.constexpr,
) -> None:
    """Append the tokens of one request; those that would be in the last column or behind it are dropped."""
    request = tl.program_id(0).to(tl.int64)
    line = tl.load(lines_ptr + request)
    count = tl.load(num_accepted_ptr + request) + 1
    start = tl.minimum(
        tl.maximum(tl.load(num_tokens_ptr + line), 0), width - 1
    )  # a proposer may have written to it
    columns = tl.arange(0, BLOCK_N)
    places = start + columns
    is_kept = (columns < tl.minimum(count, num_columns)) & (places < width - 1)
    tokens = tl.load(token_ids_ptr + request * num_columns + columns, mask=is_kept, other=0)
    tl.store(table_ptr + line * width + places, tokens.to(tl.int32), mask=is_kept)
    tl.store(num_tokens_ptr + line, tl.minimum(start + count, width - 1))


def heuristic(num_tokens: int) -> LaunchConfig:
    """Return a configuration in which a program, that of one request, appends the tokens of a verdict at once."""
    return LaunchConfig(roomy(num_tokens, 16))


def append_tokens_triton(
    table: torch.Tensor,
    num_tokens: torch.Tensor,
    lines: torch.Tensor,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes `table [L, W]` and `num_tokens [L]`."""
    config = config or heuristic(token_ids.shape[1])
    (size, num_columns), width = token_ids.shape, table.shape[1]
    append_tokens_kernel[(size,)](
        table,
        num_tokens,
        lines,
        num_accepted,
        token_ids,
        width,
        num_columns,
        BLOCK_N=config.block,
        num_warps=1,
    )
