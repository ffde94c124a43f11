"""Strict verification as one Triton kernel: a draw at every node, by tiles; the last tile of a request walks its nodes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import (
    load_divisor,
    load_logits,
    race_tile,
    tile_winner,
)
from specdec_kernels.triton.last_program import arrival_counts, is_last_program
from specdec_kernels.triton.launch import places_for
from specdec_kernels.triton.noise.config import LaunchConfig, heuristic
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.process_logits.kernel import weights_of
from specdec_kernels.triton.strict_verify.cuts import is_before, is_cut_by, kept_draw
from specdec_kernels.triton.strict_verify.request_cuts import RequestCuts


@triton.jit
def parent_of(parents_ptr: tl.tensor, node: tl.tensor, HAS_PARENTS: tl.constexpr) -> tl.tensor:
    """Return the parent of one node of a request, whatever is given: at least -1 and less than the node, so every walk ends."""
    if HAS_PARENTS:
        return tl.maximum(tl.minimum(tl.load(parents_ptr + node).to(tl.int64), node - 1), -1)
    else:
        return node - 1


@triton.jit
def walk_tree(
    request: tl.tensor,
    best_ptr: tl.tensor,
    score_ptr: tl.tensor,
    id_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    parents_ptr: tl.tensor,
    parents_stride: tl.tensor,
    num_nodes: tl.tensor,
    num_accepted_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    accepted_nodes_ptr: tl.tensor,
    first_invalid_ptr: tl.tensor,
    width: tl.tensor,
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    amounts_ptr: tl.tensor,
    amounts_stride: tl.tensor,
    HAS_PARENTS: tl.constexpr,
    HAS_CUTS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Follow the drawn tokens of one request to the deepest accepted node, the first of equally deep ones.

    Position 0 is the last committed token, position j + 1 node j. Depths and drawn tokens stay in registers.
    """
    divisor = load_divisor(temperatures_ptr, request, best_ptr.dtype.element_ty)
    parents_ptr += request * parents_stride
    draft_ptr += request * draft_stride
    tiles = tl.arange(0, BLOCK_TILES)
    in_row = tiles < NUM_TILES
    places = tl.arange(0, BLOCK_N)
    depths = tl.full((BLOCK_N,), -1, tl.int64)  # -1 where a node is rejected
    drawn = tl.full((BLOCK_N,), -1, tl.int64)
    is_invalid = tl.zeros((BLOCK_N,), tl.int32)
    last = tl.full((), 0, tl.int64)
    deepest = tl.full((), 0, tl.int64)
    for place in range(num_nodes + 1):
        depth = tl.full((), 0, tl.int64)
        if place > 0:
            parent = parent_of(parents_ptr, place - 1, HAS_PARENTS)
            above = tl.sum(tl.where(places == parent + 1, depths, 0), 0)
            wanted = tl.sum(tl.where(places == parent + 1, drawn, 0), 0)
            drafted = tl.load(draft_ptr + place - 1).to(tl.int64)
            depth = tl.where((above >= 0) & (drafted == wanted), above + 1, -1)
        if depth >= 0:
            offsets = (request * (width + 1) + place) * NUM_TILES + tiles
            best = tl.load(best_ptr + offsets, mask=in_row, other=-float("inf"))
            score = tl.load(score_ptr + offsets, mask=in_row, other=-float("inf"))
            ids = tl.load(id_ptr + offsets, mask=in_row, other=0)
            is_broken = (tl.max((ids < 0).to(tl.int32), 0) > 0) | (tl.max(best, 0) == -float("inf"))
            is_invalid = tl.where(places == place, is_broken.to(tl.int32), is_invalid)
            ids = tl.where(ids < 0, -1 - ids, ids)
            winner = tile_winner(best, score, ids, divisor, tiles)
            if HAS_CUTS:
                top_k = tl.load(top_k_ptr + request).to(tl.int64)
                top_p = tl.load(top_p_ptr + request)
                temperature = tl.load(temperatures_ptr + request)
                if is_cut_by(top_k, top_p, temperature, vocab_size) & (is_broken == 0):
                    own_ptr = amounts_ptr + offsets
                    winner = kept_draw(
                        logits_ptr + (tl.load(row_starts_ptr + request).to(tl.int64) + place) * row_stride,
                        vocab_size,
                        winner,
                        tl.sum(tl.load(own_ptr, mask=in_row, other=0), 0),
                        tl.sum(tl.load(own_ptr + amounts_stride, mask=in_row, other=0), 0),
                        tl.sum(tl.load(own_ptr + 2 * amounts_stride, mask=in_row, other=0), 0),
                        top_k,
                        top_p,
                        tl.max(best, 0),
                        divisor,
                        tl.load(seeds_ptr + request),
                        depth + tl.load(positions_ptr + request),
                        tl.load(samples_ptr + request),
                        BLOCK_V,
                    )
            drawn = tl.where(places == place, winner, drawn)
            depths = tl.where(places == place, depth, depths)
            last = tl.where(depth > deepest, place, last)
            deepest = tl.maximum(deepest, depth)
    tokens = tl.where(places == deepest, tl.sum(tl.where(places == last, drawn, 0), 0), -1)
    first_invalid = tl.where(tl.sum(tl.where(places == last, is_invalid, 0), 0) > 0, deepest, -1)
    nodes = tl.full((BLOCK_N,), -1, tl.int64)
    step = deepest - 1
    node = last - 1
    while node >= 0:
        nodes = tl.where(places == step, node, nodes)
        tokens = tl.where(places == step, tl.load(draft_ptr + node).to(tl.int64), tokens)
        node = parent_of(parents_ptr, node, HAS_PARENTS)
        is_broken = tl.sum(tl.where(places == node + 1, is_invalid, 0), 0) > 0
        first_invalid = tl.where(is_broken, step, first_invalid)
        step -= 1
    tl.store(num_accepted_ptr + request, deepest)
    tl.store(first_invalid_ptr + request, first_invalid)
    tl.store(token_ids_ptr + request * (width + 1) + places, tokens, mask=places <= width)
    tl.store(accepted_nodes_ptr + request * width + places, nodes, mask=places < width)


@triton.jit(
    do_not_specialize=["parents_stride", "draft_stride", "width", "amounts_stride"],
    do_not_specialize_on_alignment=["score_ptr"],
)
def draw_and_walk_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    parents_ptr: tl.tensor,
    parents_stride: tl.tensor,
    temperatures_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    best_ptr: tl.tensor,
    score_ptr: tl.tensor,
    id_ptr: tl.tensor,
    num_drawn_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    num_accepted_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    accepted_nodes_ptr: tl.tensor,
    first_invalid_ptr: tl.tensor,
    width: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    amounts_ptr: tl.tensor,
    amounts_stride: tl.tensor,
    HAS_PARENTS: tl.constexpr,
    HAS_CUTS: tl.constexpr,
    CHECKS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Draw in one tile after one node of one request; write best, score and winner to `[B, width + 1, NUM_TILES]`.

    The winner w of a tile that has a NaN is written as -1 - w. The last program of a request walks its nodes; `num_drawn [B]`
    is its count, see `is_last_program`. With cuts this runs twice: the first draws, and the second, which CHECKS, writes to
    `amounts [3, B, width + 1, NUM_TILES]` number and mass of the ids of a tile before the one drawn, and the mass of all.
    """
    program = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    request = program // (width + 1)
    place = program % (width + 1)
    num_nodes = tl.minimum(tl.load(num_nodes_ptr + request).to(tl.int64), width)
    if place <= num_nodes:
        depth = tl.full((), 0, tl.int64)
        if HAS_PARENTS:
            node = place - 1
            while node >= 0:
                node = parent_of(parents_ptr + request * parents_stride, node, HAS_PARENTS)
                depth += 1
        else:
            depth += place
        dtype = best_ptr.dtype.element_ty
        row = tl.load(row_starts_ptr + request).to(tl.int64) + place
        ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        if CHECKS:
            temperature = tl.load(temperatures_ptr + request)
            top_k, top_p = tl.load(top_k_ptr + request).to(tl.int64), tl.load(top_p_ptr + request)
            if is_cut_by(top_k, top_p, temperature, vocab_size):
                tiles = tl.arange(0, BLOCK_TILES)
                offsets, in_row = program * NUM_TILES + tiles, tiles < NUM_TILES
                found = tl.load(id_ptr + offsets, mask=in_row, other=0)
                winner = tile_winner(
                    tl.load(best_ptr + offsets, mask=in_row, other=-float("inf")),
                    tl.load(score_ptr + offsets, mask=in_row, other=-float("inf")),
                    tl.where(found < 0, -1 - found, found),
                    load_divisor(temperatures_ptr, request, dtype),
                    tiles,
                )
                border = tl.load(logits_ptr + row * row_stride + winner)
                logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
                comes_before = is_before(logits, ids, border, winner)
                masses = weights_of(logits)
                own_ptr = amounts_ptr + program * NUM_TILES + tile
                tl.store(own_ptr, tl.sum(comes_before.to(tl.int64), 0))
                tl.store(own_ptr + amounts_stride, tl.sum(tl.where(comes_before, masses, 0), 0))
                tl.store(own_ptr + 2 * amounts_stride, tl.sum(masses, 0))
        else:
            raw = tl.load(logits_ptr + row * row_stride + ids, mask=ids < vocab_size, other=-float("inf"))
            raw = raw.to(dtype)
            logits = tl.where(raw != raw, -float("inf"), raw)
            is_broken = tl.max((raw != raw).to(tl.int32), 0) > 0
            best = tl.max(logits, 0)
            score, winner = race_tile(
                logits,
                best,
                load_divisor(temperatures_ptr, request, dtype),
                tl.load(temperatures_ptr + request) > 0.0,
                tl.load(seeds_ptr + request),
                tl.load(positions_ptr + request) + depth,
                tl.load(samples_ptr + request),
                tl.full((), 0, tl.int64),
                tile,
                BLOCK_V,
            )
            tl.store(best_ptr + program * NUM_TILES + tile, best)
            tl.store(score_ptr + program * NUM_TILES + tile, score)
            tl.store(id_ptr + program * NUM_TILES + tile, tl.where(is_broken, -1 - winner, winner))
        if CHECKS == HAS_CUTS:  # noqa: SIM102  one is known when it is compiled
            if is_last_program(num_drawn_ptr + request, NUM_TILES * (num_nodes + 1)):
                walk_tree(
                    request,
                    best_ptr,
                    score_ptr,
                    id_ptr,
                    temperatures_ptr,
                    draft_ptr,
                    draft_stride,
                    parents_ptr,
                    parents_stride,
                    num_nodes,
                    num_accepted_ptr,
                    token_ids_ptr,
                    accepted_nodes_ptr,
                    first_invalid_ptr,
                    width,
                    logits_ptr,
                    row_stride,
                    vocab_size,
                    row_starts_ptr,
                    seeds_ptr,
                    positions_ptr,
                    samples_ptr,
                    top_k_ptr,
                    top_p_ptr,
                    amounts_ptr,
                    amounts_stride,
                    HAS_PARENTS,
                    HAS_CUTS,
                    NUM_TILES,
                    BLOCK_V,
                    BLOCK_TILES,
                    BLOCK_N,
                )


def strict_verify_triton(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    parents: torch.Tensor | None,
    cuts: RequestCuts | None,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    accepted_nodes: torch.Tensor,
    first_invalid: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel, twice with cuts; writes the tensors of a `PathVerdict`."""
    num_requests, width = draft_token_ids.shape
    vocab_size = logits.shape[1]
    config = config or heuristic(vocab_size)
    num_tiles = config.num_tiles(vocab_size)
    shape = (num_requests, width + 1, num_tiles)
    best, score = torch.empty(
        (2, *shape), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device
    )
    ids = torch.empty(shape, dtype=torch.int32, device=logits.device)
    links = draft_token_ids if parents is None else parents  # not read for chains
    # Nor are these without cuts.
    top_k, top_p = (num_nodes, temperatures) if cuts is None else cuts
    amounts = (
        keys.seeds if cuts is None else torch.empty((3, *shape), dtype=torch.int64, device=logits.device)
    )
    for checks in (False,) if cuts is None else (False, True):
        draw_and_walk_kernel[(num_requests * (width + 1), num_tiles)](
            logits,
            logits.stride(0),
            vocab_size,
            row_starts,
            num_nodes,
            links,
            links.stride(0),
            temperatures,
            *keys,
            best,
            score,
            ids,
            arrival_counts(num_requests, logits.device),
            draft_token_ids,
            draft_token_ids.stride(0),
            num_accepted,
            token_ids,
            accepted_nodes,
            first_invalid,
            width,
            top_k,
            top_p,
            amounts,
            amounts.stride(0),
            HAS_PARENTS=parents is not None,
            HAS_CUTS=cuts is not None,
            CHECKS=checks,
            NUM_TILES=num_tiles,
            BLOCK_V=config.block,
            BLOCK_TILES=triton.next_power_of_2(num_tiles),
            BLOCK_N=places_for(width),
            num_warps=config.num_warps,
        )
