"""Rejection sampling along chains as two Triton kernels.

The first sums every tile of every row, and its last program of a request tests the nodes; the second draws in every tile of the
residual, and its last program of a request emits. p is never written to memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import load_divisor, load_logits
from specdec_kernels.triton.last_program import is_last_program
from specdec_kernels.triton.noise.kernel import exponentials_of, noise_words
from specdec_kernels.triton.rejection_verify.device_functions import (
    RESIDUAL,
    STREAM_BITS,
    accept_ratio,
    node_uniforms,
    probabilities,
    residual,
    row_norm,
    sum_tile,
)


@triton.jit
def accept_chain(
    request: tl.tensor,
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes: tl.tensor,
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
    draft_ids_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Count the accepted nodes of one request: a node is accepted while its uniform is below p / q."""
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
        best, mass, best_id = row_norm(
            best_ptr, mass_ptr, id_ptr, place, vocab_size, divisor, NUM_TILES, BLOCK_TILES
        )
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
            draft_ids_ptr,
            is_drawn,
            HAS_MAP,
        )
        stands = tl.sum(tl.where(nodes == num_accepted, uniforms, 0.0), 0) < ratio
        num_accepted += stands.to(tl.int64)
        goes_on = stands & (num_accepted < num_nodes)
    tl.store(num_accepted_ptr + request, num_accepted)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def sum_and_accept_kernel(
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
    draft_ids_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    num_arrived_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Sum one tile of a row; the last program of a request counts its accepted nodes."""
    program = tl.program_id(0).to(tl.int64)
    request = program // (width + 1)
    num_nodes = tl.minimum(tl.load(num_nodes_ptr + request).to(tl.int64), width)
    if program % (width + 1) <= num_nodes:
        sum_tile(
            logits_ptr,
            row_stride,
            vocab_size,
            row_starts_ptr,
            temperatures_ptr,
            best_ptr,
            mass_ptr,
            id_ptr,
            program,
            tl.program_id(1),
            width,
            NUM_TILES,
            BLOCK_V,
        )
        if is_last_program(num_arrived_ptr + request, NUM_TILES * (num_nodes + 1)):
            accept_chain(
                request,
                logits_ptr,
                row_stride,
                vocab_size,
                row_starts_ptr,
                num_nodes,
                temperatures_ptr,
                seeds_ptr,
                positions_ptr,
                samples_ptr,
                draft_ptr,
                draft_stride,
                q_ptr,
                q_stride,
                q_row_stride,
                draft_vocab_size,
                has_probs_ptr,
                draft_ids_ptr,
                best_ptr,
                mass_ptr,
                id_ptr,
                num_accepted_ptr,
                width,
                HAS_Q,
                HAS_FLAGS,
                HAS_MAP,
                NUM_TILES,
                BLOCK_TILES,
                BLOCK_N,
            )


@triton.jit
def emit(
    request: tl.tensor,
    vocab_size: tl.tensor,
    temperatures_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    accepted: tl.tensor,
    score_ptr: tl.tensor,
    winner_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    first_unsound_ptr: tl.tensor,
    width: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Write the emitted tokens of one request, the accepted ones, the drawn one and padding, and its first unsound row."""
    divisor = load_divisor(temperatures_ptr, request, best_ptr.dtype.element_ty)
    first_unsound = tl.full((), -1, tl.int64)
    token = tl.full((), 0, tl.int64)
    for node in range(accepted + 1):
        place = accepted - node
        _, mass, token_of_row = row_norm(
            best_ptr,
            mass_ptr,
            id_ptr,
            request * (width + 1) + place,
            vocab_size,
            divisor,
            NUM_TILES,
            BLOCK_TILES,
        )
        first_unsound = tl.where(mass < 0.0, place, first_unsound)
        token = tl.where(node == 0, token_of_row, token)
    if tl.load(temperatures_ptr + request) > 0.0:
        tiles = tl.arange(0, BLOCK_TILES)
        in_row = tiles < NUM_TILES
        offsets = 2 * request * NUM_TILES + tiles
        scores = tl.load(score_ptr + offsets, mask=in_row, other=float("inf"))
        is_empty = tl.min(scores, 0) == float("inf")
        offsets = tl.where(is_empty, offsets + NUM_TILES, offsets)
        scores = tl.load(score_ptr + offsets, mask=in_row, other=float("inf"))
        ids = tl.load(winner_ptr + offsets, mask=in_row, other=0)
        first = tl.min(scores, 0, return_indices=True, return_indices_tie_break_left=True)[1]
        token = tl.sum(tl.where(tiles == first, ids, 0), 0).to(tl.int64)
    places = tl.arange(0, BLOCK_N)
    drafted = tl.load(draft_ptr + request * draft_stride + places, mask=places < accepted, other=-1)
    tokens = tl.where(places == accepted, token, drafted.to(tl.int64))
    tl.store(token_ids_ptr + request * (width + 1) + places, tokens, mask=places <= width)
    tl.store(first_unsound_ptr + request, first_unsound)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def residual_and_emit_kernel(
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
    draft_ids_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    num_arrived_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    score_ptr: tl.tensor,
    winner_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    first_unsound_ptr: tl.tensor,
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Draw in one tile from the residual after one request's accepted nodes, and from p, `[B, 2, NUM_TILES]`; the last emits.

    The draw from p is used if the residual is empty, because p = q and rounding rejected.
    """
    request = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    accepted = tl.load(num_accepted_ptr + request)
    if tl.load(temperatures_ptr + request) > 0.0:
        dtype = best_ptr.dtype.element_ty
        place = request * (width + 1) + accepted
        divisor = load_divisor(temperatures_ptr, request, dtype)
        best, mass, _ = row_norm(
            best_ptr, mass_ptr, id_ptr, place, vocab_size, divisor, NUM_TILES, BLOCK_TILES
        )
        row = tl.load(row_starts_ptr + request).to(tl.int64) + accepted
        ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
        target = tl.where(ids < vocab_size, probabilities(logits, best, mass, divisor), 0.0)
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
                vocab_size,
                q_ptr + request * q_stride + accepted * q_row_stride,
                draft_vocab_size,
                draft_ids_ptr,
                is_drawn,
                HAS_MAP,
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
        offset = 2 * request * NUM_TILES + tile
        tl.store(score_ptr + offset, score)
        tl.store(winner_ptr + offset, tile * BLOCK_V + index)
        scores = tl.where(target > 0.0, noise / tl.where(target > 0.0, target, 1.0), float("inf"))
        score, index = tl.min(scores, 0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(score_ptr + offset + NUM_TILES, score)
        tl.store(winner_ptr + offset + NUM_TILES, tile * BLOCK_V + index)
    if is_last_program(num_arrived_ptr + request, NUM_TILES):
        emit(
            request,
            vocab_size,
            temperatures_ptr,
            draft_ptr,
            draft_stride,
            best_ptr,
            mass_ptr,
            id_ptr,
            accepted,
            score_ptr,
            winner_ptr,
            token_ids_ptr,
            first_unsound_ptr,
            width,
            NUM_TILES,
            BLOCK_TILES,
            BLOCK_N,
        )
