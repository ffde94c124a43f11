"""Attention over a paged cache in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.paged_attention.tree import unpack_tree_mask


def paged_attention_reference(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    positions: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """Write the rows of every request to `out [T, H, Dv]`; see `paged_attention`."""
    starts: list[int] = query_starts.tolist()
    lengths: list[int] = context_lens.tolist()
    for request, length in enumerate(lengths):
        rows = slice(starts[request], starts[request + 1])
        num_rows = rows.stop - rows.start
        if num_rows == 0:
            continue
        visible = _visible(
            num_rows,
            length,
            window,
            None if tree_mask is None else tree_mask[rows],
            None if positions is None else positions[rows],
            query.device,
            is_causal=is_causal,
        )
        keys = _rows_of(key_pages, block_tables[request], length)
        values = _rows_of(value_pages, block_tables[request], length)
        out[rows] = _attend(query[rows].float(), keys, values, visible, scale, softcap, sinks).to(out.dtype)


def _rows_of(pages: torch.Tensor, block_table: torch.Tensor, length: int) -> torch.Tensor:
    """Return the rows `[length, Hkv, D]` of one request in float32."""
    index = torch.arange(length, device=pages.device)
    return pages[block_table[index // pages.shape[1]].long(), index % pages.shape[1]].float()


def _visible(
    num_rows: int,
    length: int,
    window: int | None,
    tree_mask: torch.Tensor | None,
    positions: torch.Tensor | None,
    device: torch.device,
    *,
    is_causal: bool,
) -> torch.Tensor:
    """Return the attention mask `[num_rows, length]` bool: the keys that each row attends to."""
    keys = torch.arange(length, device=device)
    places = keys
    num_committed = length - num_rows
    visible = (keys <= keys[num_committed:, None]) | (not is_causal)
    if tree_mask is not None:
        visible[:, num_committed:] &= unpack_tree_mask(tree_mask, num_rows)
        if positions is not None:
            places = torch.cat((keys[:num_committed], positions.to(keys.dtype)))
    if window is not None:
        visible &= places > places[num_committed:, None] - window
    return visible


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Return `[n, H, Dv]` for `query [n, H, D]`, `keys [L, Hkv, D]` and `values [L, Hkv, Dv]`, all float32."""
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("nhd,lhd->hnl", query, keys) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat((scores, column), 2)
    weights = torch.softmax(scores, 2)[..., : values.shape[0]]
    weights = weights.nan_to_num(0.0)  # a fully masked row
    return torch.einsum("hnl,lhd->nhd", weights, values)
