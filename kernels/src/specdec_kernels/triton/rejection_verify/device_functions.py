"""Device functions of rejection sampling: uniforms, sums and p of a row, p / q of a drafted id, and the residual."""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import heated_below, load_divisor, load_logits
from specdec_kernels.triton.noise.kernel import uniforms_of

ACCEPT = tl.constexpr(2)
RESIDUAL = tl.constexpr(3)
STREAM_BITS = tl.constexpr(3)


@triton.jit
def node_uniforms(
    keys: tl.tensor, seed: tl.tensor, position: tl.tensor, sample: tl.tensor, BLOCK_N: tl.constexpr
) -> tl.tensor:
    """Return the uniforms `[BLOCK_N]` float64 for the acceptance of nodes `keys`."""
    zeros = tl.zeros_like(keys).to(tl.uint32)
    words = ((keys << STREAM_BITS) | ACCEPT).to(tl.uint32)
    lane = tl.philox(
        seed.to(tl.int64), zeros, zeros + position.to(tl.uint32), zeros + sample.to(tl.uint32), words
    )[0]
    return uniforms_of(lane)


@triton.jit
def sum_tile(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    row_starts_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    program: tl.tensor,
    tile: tl.tensor,
    width: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write best logit, sum of exponentials relative to it and best id of one tile of a row, `[B, width + 1, NUM_TILES]`.

    The best id w of a tile that has a NaN is written as -1 - w.
    """
    request = program // (width + 1)
    dtype = best_ptr.dtype.element_ty
    row_ptr = (
        logits_ptr + (tl.load(row_starts_ptr + request).to(tl.int64) + program % (width + 1)) * row_stride
    )
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = load_logits(row_ptr, ids, vocab_size, dtype)
    raw = tl.load(row_ptr + ids, mask=ids < vocab_size, other=0.0).to(dtype)
    best, index = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
    mass = tl.sum(tl.exp(heated_below(logits, best, load_divisor(temperatures_ptr, request, dtype))), 0)
    best_id = tile * BLOCK_V + index
    is_broken = tl.max((raw != raw).to(tl.int32), 0) > 0
    offset = program * NUM_TILES + tile
    tl.store(best_ptr + offset, best)
    tl.store(mass_ptr + offset, mass)
    tl.store(id_ptr + offset, tl.where(is_broken, -1 - best_id, best_id))


@triton.jit
def row_norm(
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    place: tl.tensor,
    vocab_size: tl.tensor,
    divisor: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Return the best logit of a row, the sum of `exp((logit - best) / divisor)` over it, and its best id.

    The sum is `-vocab_size` for a row with a NaN or nothing above -inf.
    """
    tiles = tl.arange(0, BLOCK_TILES)
    in_row = tiles < NUM_TILES
    offsets = place * NUM_TILES + tiles
    best = tl.load(best_ptr + offsets, mask=in_row, other=-float("inf"))
    mass = tl.load(mass_ptr + offsets, mask=in_row, other=0.0)
    ids = tl.load(id_ptr + offsets, mask=in_row, other=0)
    is_broken = tl.max((ids < 0).to(tl.int32), 0) > 0
    ids = tl.where(ids < 0, -1 - ids, ids)
    top, first = tl.max(best, 0, return_indices=True, return_indices_tie_break_left=True)
    total = tl.sum(mass * tl.exp(heated_below(best, top, divisor)), 0)
    total = tl.where(is_broken | (top == -float("inf")), tl.zeros_like(total) - vocab_size, total)
    return top, total, tl.sum(tl.where(tiles == first, ids, 0), 0).to(tl.int64)


@triton.jit
def probabilities(logits: tl.tensor, best: tl.tensor, mass: tl.tensor, divisor: tl.tensor) -> tl.tensor:
    """Return p of logits of ids inside the vocabulary; uniform where `mass` says that the row has none, see `row_norm`."""
    return tl.where(mass > 0.0, tl.exp(heated_below(logits, best, divisor)), -1.0) / mass


@triton.jit
def load_q(
    q_ptr: tl.tensor,
    ids: tl.tensor,
    is_inside: tl.tensor,
    draft_vocab_size: tl.tensor,
    draft_ids_ptr: tl.tensor,
    HAS_MAP: tl.constexpr,
) -> tl.tensor:
    """Return q of ids of the target; 0 of those that the draft does not have or that are not inside."""
    if HAS_MAP:
        ids = tl.load(draft_ids_ptr + ids, mask=is_inside, other=-1)
    return tl.load(q_ptr + ids, mask=is_inside & (ids >= 0) & (ids < draft_vocab_size), other=0.0)


@triton.jit
def accept_ratio(
    row_ptr: tl.tensor,
    vocab_size: tl.tensor,
    drafted: tl.tensor,
    best: tl.tensor,
    mass: tl.tensor,
    best_id: tl.tensor,
    divisor: tl.tensor,
    is_sampled: tl.tensor,
    q_ptr: tl.tensor,
    draft_vocab_size: tl.tensor,
    draft_ids_ptr: tl.tensor,
    is_drawn: tl.tensor,
    HAS_MAP: tl.constexpr,
) -> tl.tensor:
    """Return p / q of a drafted id; at temperature 0 whether it is the best. 0 if it cannot have been drawn."""
    dtype: tl.constexpr = best.dtype
    is_inside = (drafted >= 0) & (drafted < vocab_size)
    logit = tl.load(row_ptr + drafted, mask=is_inside, other=-float("inf")).to(dtype)
    logit = tl.where(logit != logit, -float("inf"), logit)
    at_p = probabilities(logit, best, mass, divisor)
    at_p = tl.where(is_sampled, at_p, (drafted == best_id).to(dtype))
    at_q = load_q(q_ptr, drafted, is_inside & is_drawn, draft_vocab_size, draft_ids_ptr, HAS_MAP).to(dtype)
    at_q = tl.where(is_drawn, at_q, 1.0)
    return tl.where(is_inside & (at_q > 0.0), at_p / tl.where(at_q > 0.0, at_q, 1.0), 0.0)


@triton.jit
def residual(
    target: tl.tensor,
    weight: tl.tensor,
    ids: tl.tensor,
    drafted: tl.tensor,
    vocab_size: tl.tensor,
    q_ptr: tl.tensor,
    draft_vocab_size: tl.tensor,
    draft_ids_ptr: tl.tensor,
    is_drawn: tl.tensor,
    HAS_MAP: tl.constexpr,
) -> tl.tensor:
    """Return `max(weight * p - q, 0)` of a tile at a drafted position; without q the drafted token has probability 1."""
    if is_drawn:
        q = load_q(q_ptr, ids, ids < vocab_size, draft_vocab_size, draft_ids_ptr, HAS_MAP)
        rest = target * weight - q.to(target.dtype)
    else:
        rest = tl.where(ids == drafted, 0.0, target * weight)
    return tl.where(rest > 0.0, rest, 0.0)
