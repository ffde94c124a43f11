"""Rejection sampling along chains as four Triton kernels.

They compute the sums of every tile of every row, the acceptance tests per request, a draw in every tile of the residual,
and its winner. p is never written to memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import heated_below, load_divisor, load_logits
from specdec_kernels.triton.noise.kernel import exponentials_of, noise_words
from specdec_kernels.triton.rejection_verify.device_functions import (
    RESIDUAL,
    STREAM_BITS,
    accept_ratio,
    node_uniforms,
    probabilities,
    residual,
    row_norm,
)


@triton.jit(do_not_specialize=["width"], do_not_specialize_on_alignment=["mass_ptr"])
def row_sums_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    width: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write best logit, sum of exponentials relative to it and best id of one tile of a row, `[B, width + 1, NUM_TILES]`."""
    program = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    request = program // (width + 1)
    place = program % (width + 1)
    if place <= tl.load(num_nodes_ptr + request):
        dtype = best_ptr.dtype.element_ty
        row = tl.load(row_starts_ptr + request).to(tl.int64) + place
        ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
        best, index = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
        divisor = load_divisor(temperatures_ptr, request, dtype)
        mass = tl.sum(tl.exp(heated_below(logits, best, divisor)), 0)
        tl.store(best_ptr + program * NUM_TILES + tile, best)
        tl.store(mass_ptr + program * NUM_TILES + tile, mass)
        tl.store(id_ptr + program * NUM_TILES + tile, tile * BLOCK_V + index)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def accept_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    q_ptr: tl.tensor,
    q_stride: tl.tensor,
    q_row_stride: tl.tensor,
    draft_vocab_size: tl.tensor,
    has_probs_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Count the accepted nodes of one request: a node is accepted while its uniform is below p / q."""
    request = tl.program_id(0).to(tl.int64)
    num_nodes = tl.load(num_nodes_ptr + request).to(tl.int64)
    row_start = tl.load(row_starts_ptr + request).to(tl.int64)
    divisor = load_divisor(temperatures_ptr, request, best_ptr.dtype.element_ty)
    is_sampled = tl.load(temperatures_ptr + request) > 0.0
    is_drawn = is_sampled & HAS_Q
    if HAS_FLAGS:
        is_drawn = is_drawn & (tl.load(has_probs_ptr + request) != 0)
    nodes = tl.arange(0, BLOCK_N)
    uniforms = node_uniforms(
        nodes,
        tl.load(seeds_ptr + request),
        tl.load(positions_ptr + request),
        tl.load(samples_ptr + request),
        BLOCK_N,
    )
    num_accepted = tl.full((), 0, tl.int64)
    goes_on = num_nodes > 0
    while goes_on:
        place = request * (width + 1) + num_accepted
        best, mass, best_id = row_norm(best_ptr, mass_ptr, id_ptr, place, divisor, NUM_TILES, BLOCK_TILES)
        ratio = accept_ratio(
            logits_ptr + (row_start + num_accepted) * row_stride,
            vocab_size,
            tl.load(draft_ptr + request * draft_stride + num_accepted).to(tl.int64),
            best,
            mass,
            best_id,
            divisor,
            is_sampled,
            q_ptr + request * q_stride + num_accepted * q_row_stride,
            draft_vocab_size,
            is_drawn,
        )
        stands = tl.sum(tl.where(nodes == num_accepted, uniforms, 0.0), 0) < ratio
        num_accepted += stands.to(tl.int64)
        goes_on = stands & (num_accepted < num_nodes)
    tl.store(num_accepted_ptr + request, num_accepted)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def residual_tile_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    q_ptr: tl.tensor,
    q_stride: tl.tensor,
    q_row_stride: tl.tensor,
    draft_vocab_size: tl.tensor,
    has_probs_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    score_ptr: tl.tensor,
    winner_ptr: tl.tensor,
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Draw in one tile from the residual after one request's accepted nodes, and from p, `[2, B, NUM_TILES]`.

    The draw from p is used if the residual is empty, because p = q and rounding rejected.
    """
    request = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    if tl.load(temperatures_ptr + request) > 0.0:
        dtype = best_ptr.dtype.element_ty
        accepted = tl.load(num_accepted_ptr + request)
        place = request * (width + 1) + accepted
        divisor = load_divisor(temperatures_ptr, request, dtype)
        best, mass, _ = row_norm(best_ptr, mass_ptr, id_ptr, place, divisor, NUM_TILES, BLOCK_TILES)
        row = tl.load(row_starts_ptr + request).to(tl.int64) + accepted
        ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
        target = probabilities(logits, best, mass, divisor)
        rest = target
        if accepted < tl.load(num_nodes_ptr + request):
            is_drawn = tl.full((), HAS_Q, tl.int1)
            if HAS_FLAGS:
                is_drawn = is_drawn & (tl.load(has_probs_ptr + request) != 0)
            weight = tl.full((), 1.0, dtype)
            if HAS_WEIGHTS:
                weight = tl.load(weights_ptr + place)
            rest = residual(
                target,
                weight,
                ids,
                tl.load(draft_ptr + request * draft_stride + accepted),
                q_ptr + request * q_stride + accepted * q_row_stride,
                draft_vocab_size,
                is_drawn,
            )
        words = noise_words(
            tl.load(seeds_ptr + request),
            tl.load(positions_ptr + request),
            tl.load(samples_ptr + request),
            (accepted << STREAM_BITS) | RESIDUAL,
            tile,
            BLOCK_V,
        )
        noise = exponentials_of(words, dtype)
        scores = tl.where(rest > 0.0, noise / tl.where(rest > 0.0, rest, 1.0), float("inf"))
        score, index = tl.min(scores, 0, return_indices=True, return_indices_tie_break_left=True)
        offset = request * NUM_TILES + tile
        tl.store(score_ptr + offset, score)
        tl.store(winner_ptr + offset, tile * BLOCK_V + index)
        scores = tl.where(target > 0.0, noise / tl.where(target > 0.0, target, 1.0), float("inf"))
        score, index = tl.min(scores, 0, return_indices=True, return_indices_tie_break_left=True)
        offset += tl.num_programs(0).to(tl.int64) * NUM_TILES
        tl.store(score_ptr + offset, score)
        tl.store(winner_ptr + offset, tile * BLOCK_V + index)


@triton.jit(do_not_specialize=["draft_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"])
def emit_kernel(
    temperatures_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    score_ptr: tl.tensor,
    winner_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    width: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Write the emitted tokens of one request: the accepted tokens, the drawn token, and padding."""
    request = tl.program_id(0).to(tl.int64)
    accepted = tl.load(num_accepted_ptr + request)
    if tl.load(temperatures_ptr + request) > 0.0:
        tiles = tl.arange(0, BLOCK_TILES)
        in_row = tiles < NUM_TILES
        offsets = request * NUM_TILES + tiles
        from_p = offsets + tl.num_programs(0).to(tl.int64) * NUM_TILES
        scores = tl.load(score_ptr + offsets, mask=in_row, other=float("inf"))
        is_empty = tl.min(scores, 0) == float("inf")
        offsets = tl.where(is_empty, from_p, offsets)
        scores = tl.load(score_ptr + offsets, mask=in_row, other=float("inf"))
        ids = tl.load(winner_ptr + offsets, mask=in_row, other=0)
        first = tl.min(scores, 0, return_indices=True, return_indices_tie_break_left=True)[1]
        token = tl.sum(tl.where(tiles == first, ids, 0), 0).to(tl.int64)
    else:
        divisor = load_divisor(temperatures_ptr, request, best_ptr.dtype.element_ty)
        place = request * (width + 1) + accepted
        token = row_norm(best_ptr, mass_ptr, id_ptr, place, divisor, NUM_TILES, BLOCK_TILES)[2]
    places = tl.arange(0, BLOCK_N)
    drafted = tl.load(draft_ptr + request * draft_stride + places, mask=places < accepted, other=-1)
    tokens = tl.where(places == accepted, token, drafted.to(tl.int64))
    tl.store(token_ids_ptr + request * (width + 1) + places, tokens, mask=places <= width)
