"""Argument checks of `paged_attention`."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import (
    IDS,
    check_heads,
    check_input,
    check_pages,
    check_tensor,
    check_vector,
    shown,
)


def check_inputs(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    context_lens: torch.Tensor,
) -> None:
    """Reject queries, pages and tables that do not match.

    Raises:
        ValueError: naming the argument.
    """
    check_input("query", query, ("T", "H", "D"))
    check_pages(key_pages, value_pages, ("Hkv", query.shape[2]), "Dv", like=query)
    check_heads(query, key_pages.shape[2], "key_pages")
    if block_tables.dim() != 2 or block_tables.shape[1] == 0:
        raise ValueError(f"block_tables must be int32 or int64 [B, M] with M > 0, not {shown(block_tables)}")
    num_requests = block_tables.shape[0]
    check_tensor("block_tables", block_tables, block_tables.shape, IDS, query)
    check_tensor("query_starts", query_starts, (num_requests + 1,), IDS, query)
    check_tensor("context_lens", context_lens, (num_requests,), IDS, query)


def check_options(
    query: torch.Tensor,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    positions: torch.Tensor | None,
) -> None:
    """Reject invalid options and invalid combinations of options.

    Raises:
        ValueError: naming the argument.
    """
    num_rows, num_heads, _ = query.shape
    if window is not None and window < 1:
        raise ValueError(f"window={window} must be at least 1, or None for no window")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap={softcap} must be above 0, or None for no cap")
    if sinks is not None:
        check_vector("sinks", sinks, num_heads, like=query)
    if tree_mask is not None:
        width = tree_mask.shape[-1] if tree_mask.dim() else 0
        check_tensor("tree_mask", tree_mask, (num_rows, width), (torch.int64,), query)
    if positions is not None:
        check_tensor("positions", positions, (num_rows,), IDS, query)
        if tree_mask is None:
            raise ValueError(
                "positions are read with tree_mask alone: rows of chains have theirs by their order"
            )
    elif tree_mask is not None and window is not None:
        raise ValueError("positions are needed with both tree_mask and window")
