"""`paged_attention`: attention of ragged rows, such as prompt chunks and drafts, over a paged cache."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_rows
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.paged_attention.arguments import check_inputs, check_options
from specdec_kernels.triton.paged_attention.config import (
    LaunchConfig,
    Problem,
    heuristic,
    heuristics,
    invariant,
)
from specdec_kernels.triton.paged_attention.reference import paged_attention_reference
from specdec_kernels.triton.paged_attention.tree import pack_tree_mask

__all__ = ["pack_tree_mask", "paged_attention"]


def paged_attention(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    context_lens: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    is_causal: bool = True,
    max_context_len: int | None = None,
    batch_invariant: bool = False,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Attend from the rows of a pass to the cache, which already contains the pass's own keys and values.

    The rows of request b are `query_starts[b]` to `query_starts[b + 1]` and are the last of its context: row i of n
    attends to tokens up to index `context_lens[b] - n + i`. Token j of a request is in block `block_tables[b, j // S]`. A
    row that attends to nothing, because its tree mask excludes itself, gives zeros. Rows from `query_starts[B]` on are
    padding; their output is not written. The kernels copy nothing to the host, so the caller must keep all indices in
    range.

    The context is split into shares that run in parallel and are combined as in flash-decoding
    (https://crfm.stanford.edu/2023/10/12/flashdecoding.html). The number of shares depends on sizes, not on data.

    Args:
        query: `[T, H, D]` float32, float16 or bfloat16; H a multiple of Hkv.
        key_pages: `[num_blocks, block_size, Hkv, D]` of the same type.
        value_pages: `[num_blocks, block_size, Hkv, Dv]` of the same type.
        block_tables: `[B, M]` integer: blocks of each request; entries beyond its context are not read.
        query_starts: `[B + 1]` integer, from 0, not decreasing; a request may have no rows.
        context_lens: `[B]` integer: tokens of each request in the cache, including its rows in this pass.
        scale: factor on the scores.
        window: sliding window in positions, including the row itself; None for no window.
        softcap: scores become `softcap * tanh(scores / softcap)`; None disables it.
        sinks: `[H]` floating point: one logit per head that takes part in the softmax without a value.
        tree_mask: `[T, W]` int64 bits, see `pack_tree_mask`: the rows of its request in this pass to which a row attends.
            The mask only removes: a causal row never attends to a later one, and rows from 64 W on are not masked. Requests
            whose rows are chains have -1 throughout.
        positions: `[T]` integer: position of each row, since the order of a tree's rows does not determine it. Required
            with both `tree_mask` and `window`; only read then.
        is_causal: whether a row attends to no later one; else rows of a request see each other, as in a block of masks.
        max_context_len: upper bound of `context_lens`; None uses `M * block_size`.
        batch_invariant: whether a row's result must be bit-identical whatever else is in the pass. This also requires the
            same `config` and device. The reference uses torch's products and gives no such guarantee.
        out: `[T, H, Dv]` to write to; None allocates it.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Returns:
        `[T, H, Dv]` of the query's type.

    Raises:
        ValueError: naming the argument whose value, shape, type, device or layout is wrong.
    """
    check_inputs(query, key_pages, value_pages, block_tables, query_starts, context_lens)
    check_options(query, window, softcap, sinks, tree_mask, positions)
    num_rows, num_heads, _ = query.shape
    value_dim = value_pages.shape[3]
    if out is None:
        out = query.new_empty((num_rows, num_heads, value_dim))
    check_rows("out", out, (num_rows, num_heads, value_dim), like=query)
    if max_context_len is None:
        max_context_len = block_tables.shape[1] * key_pages.shape[1]
    problem = _problem(query, key_pages, value_pages, context_lens.shape[0], max_context_len)
    chosen = _chosen(problem, batch_invariant, config)
    if num_rows == 0 or context_lens.shape[0] == 0:
        return out
    inputs = (query, key_pages, value_pages, block_tables, query_starts, context_lens)
    if backend_for(query) is Backend.REFERENCE:
        paged_attention_reference(
            *inputs,
            out,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks=sinks,
            tree_mask=tree_mask,
            positions=positions,
            is_causal=is_causal,
        )
        return out
    from specdec_kernels.triton.paged_attention.kernel import paged_attention_triton  # imports Triton

    paged_attention_triton(
        *inputs,
        out,
        scale=scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        tree_mask=tree_mask,
        positions=positions,
        is_causal=is_causal,
        num_shares=chosen.shares(max_context_len),
        config=chosen,
    )
    return out


def configurations(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    max_context_len: int,
    *,
    batch_invariant: bool = False,
) -> list[LaunchConfig]:
    """Return one configuration for each kernel that calls like this one need, whatever their rows are."""
    problem = _problem(query, key_pages, value_pages, 1, max_context_len)
    return [invariant(problem)] if batch_invariant else heuristics(problem)


def _problem(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    num_requests: int,
    max_context_len: int,
) -> Problem:
    return Problem(
        num_rows=query.shape[0],
        num_requests=num_requests,
        group=query.shape[1] // key_pages.shape[2],
        num_kv_heads=key_pages.shape[2],
        key_dim=query.shape[2],
        value_dim=value_pages.shape[3],
        itemsize=query.itemsize,
        max_context_len=max_context_len,
    )


def _chosen(problem: Problem, batch_invariant: bool, config: LaunchConfig | None) -> LaunchConfig:
    if config is None:
        return invariant(problem) if batch_invariant else heuristic(problem)
    if batch_invariant and not config.is_batch_invariant:
        raise ValueError(
            f"config cuts into num_splits={config.num_splits} shares, which is not batch_invariant: give it a split_size"
        )
    if config.block_rows < problem.group:
        raise ValueError(f"config.block_rows={config.block_rows} must be at least H / Hkv = {problem.group}")
    return config
