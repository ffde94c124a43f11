"""Attention over a paged cache as two Triton kernels: one per query tile, KV head and share, and one to combine shares."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.paged_attention.config import LaunchConfig, requests_block

_LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def soft_capped(scores: tl.tensor, CAP: tl.constexpr) -> tl.tensor:
    """Return `CAP * tanh(scores / CAP)`, exact to a few units in the last place.

    Uses the continued fraction of tanh below 1 and exponentials above, since exponentials would cancel near 0.
    """
    x = tl.abs(scores) * (1.0 / CAP)
    near = tl.minimum(x, 1.0)
    square = near * near
    above = near * (10395.0 + square * (1260.0 + square * 21.0))
    below = 10395.0 + square * (4725.0 + square * (210.0 + square))
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.minimum(x, 20.0)) + 1.0)
    capped = CAP * tl.where(x < 1.0, above / below, far)
    return tl.where(scores < 0.0, -capped, capped)


@triton.jit
def seen_nodes(
    words_ptrs: tl.tensor, is_row: tl.tensor, first: tl.tensor, NUM_WORDS: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return 64 bits of each row's mask `[R]` from a node on, in two words; ones before the first node and behind the mask.

    A load of a word for each pair of row and token instead takes all registers and spills.
    """
    word = tl.where(is_row, first >> 6, -2)  # rounded down
    offset = (first & 63).to(tl.uint64)
    here = tl.load(words_ptrs + word, mask=(word >= 0) & (word < NUM_WORDS), other=-1).to(
        tl.uint64, bitcast=True
    )
    word += 1
    there = tl.load(words_ptrs + word, mask=(word >= 0) & (word < NUM_WORDS), other=-1).to(
        tl.uint64, bitcast=True
    )
    bits = (here >> offset) | ((there << 1) << (63 - offset))
    return bits.to(tl.uint32), (bits >> 32).to(tl.uint32)


@triton.jit
def finished(
    sums: tl.tensor, maxima: tl.tensor, masses: tl.tensor, heads: tl.tensor, sinks_ptr: tl.tensor
) -> tl.tensor:
    """Return `sums [R, Dv]` divided by their softmax masses `[R]`, including a sink; 0 if the mass is 0."""
    if sinks_ptr is not None:
        sinks = tl.load(sinks_ptr + heads).to(tl.float32) * _LOG2_E
        highest = tl.maximum(maxima, sinks)
        highest = tl.where(highest == -float("inf"), 0.0, highest)
        factors = tl.exp2(maxima - highest)
        masses = masses * factors + tl.exp2(sinks - highest)
        sums = sums * factors[:, None]
    return sums / tl.where(masses == 0.0, 1.0, masses)[:, None]


@triton.jit(do_not_specialize=["block_tables_stride", "num_rows", "num_requests", "num_shares"])
def paged_attention_kernel(
    query_ptr: tl.tensor,
    key_pages_ptr: tl.tensor,
    value_pages_ptr: tl.tensor,
    block_tables_ptr: tl.tensor,
    query_starts_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    sinks_ptr: tl.tensor,
    tree_mask_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    out_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    masses_ptr: tl.tensor,
    query_row_stride: tl.tensor,
    query_head_stride: tl.tensor,
    key_page_stride: tl.tensor,
    key_slot_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_page_stride: tl.tensor,
    value_slot_stride: tl.tensor,
    value_head_stride: tl.tensor,
    block_tables_stride: tl.tensor,
    out_row_stride: tl.tensor,
    out_head_stride: tl.tensor,
    num_rows: tl.tensor,
    num_requests: tl.tensor,
    num_shares: tl.tensor,
    GROUP: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    TREE_WORDS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    IS_SHARED: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    BLOCK_REQUESTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_KEY: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
) -> None:
    """Attend from one tile of rows of one request to one share of its context.

    A tile holds all query heads of a KV head for `BLOCK_ROWS // GROUP` tokens. The first tile of request b is
    `query_starts[b] // tokens per tile + b`; this needs no table and leaves at most one tile number per request unused. A
    row is summed in tiles of `BLOCK_TOKENS` from position 0. Tiles in which it attends to nothing do not change its
    result, whatever the other rows of its tile attend to.
    """
    TILE_QUERIES: tl.constexpr = BLOCK_ROWS // GROUP
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    share = tl.program_id(2)
    requests = tl.arange(0, BLOCK_REQUESTS)
    starts = tl.load(query_starts_ptr + requests, mask=requests < num_requests, other=0).to(tl.int32)
    is_before = (requests < num_requests) & (starts // TILE_QUERIES + requests <= tile)
    request = tl.sum(is_before.to(tl.int32), 0) - 1
    query_start = tl.load(query_starts_ptr + request).to(tl.int32)
    num_queries = tl.load(query_starts_ptr + request + 1).to(tl.int32) - query_start
    first_query = (tile - query_start // TILE_QUERIES - request) * TILE_QUERIES
    if first_query >= num_queries:
        return

    slots = tl.arange(0, BLOCK_ROWS)
    queries = first_query + slots // GROUP
    is_row = (slots < TILE_QUERIES * GROUP) & (queries < num_queries)
    queries = tl.minimum(queries, num_queries - 1)
    rows = (query_start + queries).to(tl.int64)
    heads = kv_head * GROUP + slots % GROUP
    key_dims = tl.arange(0, BLOCK_KEY)
    value_dims = tl.arange(0, BLOCK_VALUE)
    query = tl.load(
        query_ptr + rows[:, None] * query_row_stride + heads[:, None] * query_head_stride + key_dims[None, :],
        mask=is_row[:, None] & (key_dims < KEY_DIM)[None, :],
        other=0.0,
    )
    num_committed = tl.load(context_lens_ptr + request).to(tl.int32) - num_queries
    places = num_committed + queries
    last_seen = places
    if not IS_CAUSAL:
        last_seen = tl.zeros_like(queries) + (num_committed + num_queries - 1)
    if WINDOW > 0 and TREE_WORDS > 0:
        places = tl.load(positions_ptr + rows).to(tl.int32)

    begin = 0
    end = num_committed + num_queries
    if IS_CAUSAL:
        end = num_committed + tl.minimum(first_query + TILE_QUERIES, num_queries)
    if WINDOW > 0:
        begin = tl.min(places, 0) - WINDOW + 1
        if TREE_WORDS > 0:
            begin = tl.minimum(begin, num_committed)  # a tree's rows are not ordered by position
        begin = tl.maximum(begin, 0) // BLOCK_TOKENS * BLOCK_TOKENS
    if SPLIT_SIZE > 0:
        begin = tl.maximum(begin, share * SPLIT_SIZE)
        end = tl.minimum(end, (share + 1) * SPLIT_SIZE)
    elif IS_SHARED:
        num_tiles = tl.cdiv(end - begin, BLOCK_TOKENS)
        size = tl.cdiv(num_tiles, num_shares) * BLOCK_TOKENS
        begin += share * size
        end = tl.minimum(end, begin + size)

    table_ptr = block_tables_ptr + request.to(tl.int64) * block_tables_stride
    maxima = tl.full((BLOCK_ROWS,), -float("inf"), tl.float32)
    masses = tl.zeros((BLOCK_ROWS,), tl.float32)
    sums = tl.zeros((BLOCK_ROWS, BLOCK_VALUE), tl.float32)
    if TREE_WORDS == 1:
        seen = tl.load(tree_mask_ptr + rows, mask=is_row, other=-1).to(tl.uint64, bitcast=True)
        low, high = seen.to(tl.uint32), (seen >> 32).to(tl.uint32)
    for first in range(begin, end, BLOCK_TOKENS):
        tokens = first + tl.arange(0, BLOCK_TOKENS)
        is_token = tokens < end
        pages = tl.load(table_ptr + tokens // PAGE_SIZE, mask=is_token, other=0).to(tl.int64)
        offsets = tokens % PAGE_SIZE
        key_places = pages * key_page_stride + offsets * key_slot_stride + kv_head * key_head_stride
        key = tl.load(
            key_pages_ptr + key_places[:, None] + key_dims[None, :],
            mask=is_token[:, None] & (key_dims < KEY_DIM)[None, :],
            other=0.0,
        )
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        if SOFTCAP > 0.0:
            scores = soft_capped(scores * SCALE, SOFTCAP) * _LOG2_E
        else:
            scores *= SCALE * _LOG2_E
        visible = (is_row[:, None] & is_token[None, :]) & (tokens[None, :] <= last_seen[:, None])
        token_places = tokens
        if TREE_WORDS > 0:
            nodes = tokens - num_committed
            columns = nodes
            if TREE_WORDS > 1:
                low, high = seen_nodes(
                    tree_mask_ptr + rows * TREE_WORDS, is_row, first - num_committed, TREE_WORDS
                )
                columns = tl.arange(0, BLOCK_TOKENS)
            words = tl.where((columns < 32)[None, :], low[:, None], high[:, None])
            is_seen = ((words >> (columns & 31)[None, :].to(tl.uint32)) & 1) != 0
            visible &= is_seen | (columns < 0)[None, :] | (columns >= 64)[None, :]
            if WINDOW > 0:
                is_node = (nodes >= 0) & (nodes < num_queries)
                token_places = tl.load(
                    positions_ptr + query_start + nodes, mask=is_node, other=tokens.to(positions_ptr.dtype.element_ty)
                ).to(tl.int32)  # fmt: skip
        if WINDOW > 0:
            visible &= token_places[None, :] > places[:, None] - WINDOW
        scores = tl.where(visible, scores, -float("inf"))
        highest = tl.maximum(maxima, tl.max(scores, 1))
        finite = tl.where(highest == -float("inf"), 0.0, highest)
        weights = tl.exp2(scores - finite[:, None])
        factors = tl.exp2(maxima - finite)
        maxima = highest
        masses = masses * factors + tl.sum(weights, 1)
        value_places = pages * value_page_stride + offsets * value_slot_stride + kv_head * value_head_stride
        value = tl.load(
            value_pages_ptr + value_places[:, None] + value_dims[None, :],
            mask=is_token[:, None] & (value_dims < VALUE_DIM)[None, :],
            other=0.0,
        )
        sums = tl.dot(weights.to(value.dtype), value, sums * factors[:, None], input_precision="ieee")

    is_out = is_row[:, None] & (value_dims < VALUE_DIM)[None, :]
    if not IS_SHARED:
        result = finished(sums, maxima, masses, heads, sinks_ptr)
        place = rows[:, None] * out_row_stride + heads[:, None] * out_head_stride + value_dims[None, :]
        tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=is_out)
    else:
        num_heads = tl.num_programs(1) * GROUP
        place = (share.to(tl.int64) * num_rows + rows) * num_heads + heads
        tl.store(maxima_ptr + place, maxima, mask=is_row)
        tl.store(masses_ptr + place, masses, mask=is_row)
        is_out &= (masses > 0.0)[:, None]  # sums of an empty share are not read
        tl.store(sums_ptr + place[:, None] * VALUE_DIM + value_dims[None, :], sums, mask=is_out)


@triton.jit(do_not_specialize=["num_rows", "num_requests", "num_shares"])
def combine_kernel(
    sums_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    masses_ptr: tl.tensor,
    query_starts_ptr: tl.tensor,
    sinks_ptr: tl.tensor,
    out_ptr: tl.tensor,
    out_row_stride: tl.tensor,
    out_head_stride: tl.tensor,
    num_rows: tl.tensor,
    num_requests: tl.tensor,
    num_shares: tl.tensor,
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
) -> None:
    """Combine the shares of one row in order; an empty share changes nothing, so the number of shares may vary."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(query_starts_ptr + num_requests):
        return
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    is_head = heads < NUM_HEADS
    heads = tl.minimum(heads, NUM_HEADS - 1)
    dims = tl.arange(0, BLOCK_VALUE)
    maxima = tl.full((BLOCK_HEADS,), -float("inf"), tl.float32)
    for share in range(num_shares):
        place = (share * num_rows + row) * NUM_HEADS + heads
        maxima = tl.maximum(maxima, tl.load(maxima_ptr + place))
    finite = tl.where(maxima == -float("inf"), 0.0, maxima)
    masses = tl.zeros((BLOCK_HEADS,), tl.float32)
    sums = tl.zeros((BLOCK_HEADS, BLOCK_VALUE), tl.float32)
    for share in range(num_shares):
        place = (share * num_rows + row) * NUM_HEADS + heads
        mass = tl.load(masses_ptr + place)
        factors = tl.exp2(tl.load(maxima_ptr + place) - finite)
        part = tl.load(
            sums_ptr + place[:, None] * VALUE_DIM + dims[None, :],
            mask=(mass > 0.0)[:, None] & (dims < VALUE_DIM)[None, :],
            other=0.0,
        )
        masses += mass * factors
        sums += part * factors[:, None]
    result = finished(sums, maxima, masses, heads, sinks_ptr)
    place = row * out_row_stride + heads[:, None] * out_head_stride + dims[None, :]
    is_out = is_head[:, None] & (dims < VALUE_DIM)[None, :]
    tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=is_out)


def paged_attention_triton(
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
    num_shares: int,
    config: LaunchConfig,
) -> None:
    """Launch one kernel, or both if the context is split; writes `out [T, H, Dv]`."""
    num_rows, num_heads, key_dim = query.shape
    num_requests = context_lens.shape[0]
    num_kv_heads, value_dim = value_pages.shape[2:]
    group = num_heads // num_kv_heads
    partial: tuple[torch.Tensor | None, ...] = (
        None,
        None,
        None,
    )  # sums [P, T, H, Dv], maxima and masses [P, T, H]
    if num_shares > 1:
        shape = (num_shares, num_rows, num_heads)
        maxima, masses = torch.empty((2, *shape), dtype=torch.float32, device=query.device)
        partial = (maxima.new_empty((*shape, value_dim)), maxima, masses)
    num_tiles = num_rows // (config.block_rows // group) + num_requests
    block_value = max(16, triton.next_power_of_2(value_dim))
    paged_attention_kernel[(num_tiles, num_kv_heads, num_shares)](
        query,
        key_pages,
        value_pages,
        block_tables,
        query_starts,
        context_lens,
        sinks,
        tree_mask,
        positions,
        out,
        *partial,
        query.stride(0),
        query.stride(1),
        *key_pages.stride()[:3],
        *value_pages.stride()[:3],
        block_tables.stride(0),
        out.stride(0),
        out.stride(1),
        num_rows,
        num_requests,
        num_shares,
        GROUP=group,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        PAGE_SIZE=key_pages.shape[1],
        SCALE=scale,
        SOFTCAP=softcap or 0.0,
        WINDOW=window or 0,
        TREE_WORDS=0 if tree_mask is None else tree_mask.shape[1],
        IS_CAUSAL=is_causal,
        IS_SHARED=num_shares > 1,
        SPLIT_SIZE=config.split_size or 0,
        BLOCK_REQUESTS=requests_block(num_requests),
        BLOCK_ROWS=config.block_rows,
        BLOCK_TOKENS=config.block_tokens,
        BLOCK_KEY=max(16, triton.next_power_of_2(key_dim)),
        BLOCK_VALUE=block_value,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if num_shares == 1:
        return
    block_heads = max(1, min(triton.next_power_of_2(num_heads), 1024 // block_value))
    combine_kernel[(num_rows, triton.cdiv(num_heads, block_heads))](
        *partial,
        query_starts,
        sinks,
        out,
        out.stride(0),
        out.stride(1),
        num_rows,
        num_requests,
        num_shares,
        NUM_HEADS=num_heads,
        VALUE_DIM=value_dim,
        BLOCK_HEADS=block_heads,
        BLOCK_VALUE=block_value,
        num_warps=4,
    )
