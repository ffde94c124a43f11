"""Block verification along chains: two Triton kernels before the one of `rejection_verify` that draws from the residual.

The first sums every tile of every row, and its last program of a request weighs the nodes; the second computes the residual
mass after every node by tiles, and its last program finds the deepest node that passes. All take the same first and last
arguments, whether they read each or not (`Launcher`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.block_verify.config import LaunchConfig
from specdec_kernels.triton.gumbel_sample.kernel import load_divisor, load_logits
from specdec_kernels.triton.last_program import is_last_program
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify.device_functions import (
    accept_ratio,
    node_uniforms,
    probabilities,
    residual,
    row_norm,
    sum_tile,
)
from specdec_kernels.triton.rejection_verify.launcher import Launcher


@triton.jit
def weigh_chain(
    request: tl.tensor,
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes: tl.tensor,
    temperatures_ptr: tl.tensor,
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
    weights_ptr: tl.tensor,
    width: tl.tensor,
    HAS_FLAGS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
) -> None:
    """Write 1, then P = min(1, P of its parent * p / q) of every node of one request, to `[B, width + 1]`."""
    dtype = best_ptr.dtype.element_ty
    row_start = tl.load(row_starts_ptr + request).to(tl.int64)
    divisor = load_divisor(temperatures_ptr, request, dtype)
    is_sampled = tl.load(temperatures_ptr + request) > 0.0
    is_drawn = is_sampled
    if HAS_FLAGS:
        is_drawn = is_drawn & (tl.load(has_probs_ptr + request) != 0)
    weight = tl.full((), 1.0, dtype)
    first = request * (width + 1)
    tl.store(weights_ptr + first, weight)
    for node in range(num_nodes):
        best, mass, best_id = row_norm(
            best_ptr, mass_ptr, id_ptr, first + node, vocab_size, divisor, NUM_TILES, BLOCK_TILES
        )
        ratio = accept_ratio(
            logits_ptr + (row_start + node) * row_stride,
            vocab_size,
            tl.load(draft_ptr + request * draft_stride + node).to(tl.int64),
            best,
            mass,
            best_id,
            divisor,
            is_sampled,
            q_ptr + request * q_stride + node * q_row_stride,
            draft_vocab_size,
            draft_ids_ptr,
            is_drawn,
            HAS_MAP,
        )
        weight = tl.where(weight > 0.0, tl.minimum(weight * ratio, 1.0), 0.0)  # the ratio may be infinite
        tl.store(weights_ptr + first + node + 1, weight)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def sum_and_weigh_kernel(
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
    width: tl.tensor,
    HAS_Q: tl.constexpr,
    HAS_FLAGS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Sum one tile of a row; the last program of a request weighs its nodes."""
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
            weigh_chain(
                request,
                logits_ptr,
                row_stride,
                vocab_size,
                row_starts_ptr,
                num_nodes,
                temperatures_ptr,
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
                weights_ptr,
                width,
                HAS_FLAGS,
                HAS_MAP,
                NUM_TILES,
                BLOCK_TILES,
            )


@triton.jit
def find_deepest(
    request: tl.tensor,
    num_nodes: tl.tensor,
    temperatures_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    rest_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    width: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Write the number of nodes of one request up to the deepest one that passes."""
    is_sampled = tl.load(temperatures_ptr + request) > 0.0
    tiles = tl.arange(0, BLOCK_TILES)
    nodes = tl.arange(0, BLOCK_N)
    uniforms = node_uniforms(
        nodes,
        tl.load(seeds_ptr + request),
        tl.load(positions_ptr + request),
        tl.load(samples_ptr + request),
        BLOCK_N,
    )
    num_accepted = tl.full((), 0, tl.int64)
    for node in range(num_nodes):
        place = request * (width + 1) + node + 1
        weight = tl.load(weights_ptr + place)
        # The last node has no child, and greedy weights are 1 or 0.
        chance = weight
        if is_sampled & (node + 1 < num_nodes):
            rest = tl.sum(tl.load(rest_ptr + place * NUM_TILES + tiles, mask=tiles < NUM_TILES, other=0.0), 0)
            chance = tl.where(rest > 0.0, rest / tl.where(rest > 0.0, rest + (1.0 - weight), 1.0), 0.0)
        stands = tl.sum(tl.where(nodes == node, uniforms, 0.0), 0) < chance
        num_accepted = tl.where(stands, node + 1, num_accepted).to(tl.int64)
    tl.store(num_accepted_ptr + request, num_accepted)


@triton.jit(
    do_not_specialize=["draft_stride", "q_stride", "width"], do_not_specialize_on_alignment=["mass_ptr"]
)
def rest_and_deepest_kernel(
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
    rest_ptr: tl.tensor,
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
    """Sum `max(P * p - q, 0)` over one tile, after one node that has a child, to `[B, width + 1, NUM_TILES]`.

    The last program of a request counts its accepted nodes.
    """
    program = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    request = program // (width + 1)
    place = program % (width + 1)
    num_nodes = tl.minimum(tl.load(num_nodes_ptr + request).to(tl.int64), width)
    if place <= num_nodes:
        is_sampled = tl.load(temperatures_ptr + request) > 0.0
        if is_sampled & (place > 0) & (place < num_nodes):
            dtype = best_ptr.dtype.element_ty
            divisor = load_divisor(temperatures_ptr, request, dtype)
            best, mass, _ = row_norm(
                best_ptr, mass_ptr, id_ptr, program, vocab_size, divisor, NUM_TILES, BLOCK_TILES
            )
            row = tl.load(row_starts_ptr + request).to(tl.int64) + place
            ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
            logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
            target = probabilities(logits, best, mass, divisor)
            is_drawn = is_sampled
            if HAS_FLAGS:
                is_drawn = is_drawn & (tl.load(has_probs_ptr + request) != 0)
            rest = residual(
                tl.where(ids < vocab_size, target, 0.0),
                tl.load(weights_ptr + program),
                ids,
                tl.load(draft_ptr + request * draft_stride + place),
                vocab_size,
                q_ptr + request * q_stride + place * q_row_stride,
                draft_vocab_size,
                draft_ids_ptr,
                is_drawn,
                HAS_MAP,
            )
            tl.store(rest_ptr + program * NUM_TILES + tile, tl.sum(rest, 0))
        if is_last_program(num_arrived_ptr + request, NUM_TILES * (num_nodes + 1)):
            find_deepest(
                request,
                num_nodes,
                temperatures_ptr,
                seeds_ptr,
                positions_ptr,
                samples_ptr,
                weights_ptr,
                rest_ptr,
                num_accepted_ptr,
                width,
                NUM_TILES,
                BLOCK_TILES,
                BLOCK_N,
            )


def block_verify_triton(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor,
    has_probs: torch.Tensor | None,
    draft_ids: torch.Tensor | None,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    first_unsound: torch.Tensor,
    config: LaunchConfig,
) -> None:
    """Launch the kernels; writes the tensors of a `ChainVerdict`."""
    launcher = Launcher(
        logits,
        draft_token_ids,
        row_starts,
        num_nodes,
        temperatures,
        keys,
        draft_probs,
        has_probs,
        draft_ids,
        config,
    )
    weights = launcher.by_row.new_empty(draft_token_ids.shape[0], draft_token_ids.shape[1] + 1)
    rest = torch.empty_like(launcher.by_row)
    sum_and_weigh_kernel[launcher.tile_grid](*launcher.given, weights, **launcher.options)
    rest_and_deepest_kernel[launcher.tile_grid](
        *launcher.given, weights, rest, num_accepted, **launcher.options
    )
    launcher.emit(weights, num_accepted, token_ids, first_unsound)
