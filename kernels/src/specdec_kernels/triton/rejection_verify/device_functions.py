"""Device functions of rejection sampling: uniforms, p of a row, p / q of a drafted id, and the residual."""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import heated_below
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
def row_norm(
    best_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    id_ptr: tl.tensor,
    place: tl.tensor,
    divisor: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Return the best logit of a row, the sum of `exp((logit - best) / divisor)` over it, and its best id."""
    tiles = tl.arange(0, BLOCK_TILES)
    in_row = tiles < NUM_TILES
    offsets = place * NUM_TILES + tiles
    best = tl.load(best_ptr + offsets, mask=in_row, other=-float("inf"))
    mass = tl.load(mass_ptr + offsets, mask=in_row, other=0.0)
    ids = tl.load(id_ptr + offsets, mask=in_row, other=0)
    top, first = tl.max(best, 0, return_indices=True, return_indices_tie_break_left=True)
    total = tl.sum(mass * tl.exp(heated_below(best, top, divisor)), 0)
    return top, total, tl.sum(tl.where(tiles == first, ids, 0), 0).to(tl.int64)


@triton.jit
def probabilities(logits: tl.tensor, best: tl.tensor, mass: tl.tensor, divisor: tl.tensor) -> tl.tensor:
    """Return p of logits; 0 everywhere in a row of only NaN and -inf."""
    return tl.exp(heated_below(logits, best, divisor)) / tl.where(mass > 0.0, mass, 1.0)


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
    is_drawn: tl.tensor,
) -> tl.tensor:
    """Return p / q of a drafted id; at temperature 0 whether it is the best. 0 if it cannot have been drawn."""
    dtype: tl.constexpr = best.dtype
    is_inside = (drafted >= 0) & (drafted < vocab_size)
    logit = tl.load(row_ptr + drafted, mask=is_inside, other=-float("inf")).to(dtype)
    logit = tl.where(logit != logit, -float("inf"), logit)
    at_p = probabilities(logit, best, mass, divisor)
    at_p = tl.where(is_sampled, at_p, (drafted == best_id).to(dtype))
    is_known = is_drawn & (drafted >= 0) & (drafted < draft_vocab_size)
    at_q = tl.load(q_ptr + drafted, mask=is_known, other=0.0).to(dtype)
    at_q = tl.where(is_drawn, at_q, 1.0)
    return tl.where(is_inside & (at_q > 0.0), at_p / tl.where(at_q > 0.0, at_q, 1.0), 0.0)


@triton.jit
def residual(
    target: tl.tensor,
    weight: tl.tensor,
    ids: tl.tensor,
    drafted: tl.tensor,
    q_ptr: tl.tensor,
    draft_vocab_size: tl.tensor,
    is_drawn: tl.tensor,
) -> tl.tensor:
    """Return `max(weight * p - q, 0)` of a tile at a drafted position; without q the drafted token has probability 1."""
    if is_drawn:
        q = tl.load(q_ptr + ids, mask=ids < draft_vocab_size, other=0.0).to(target.dtype)
        rest = target * weight - q
    else:
        rest = tl.where(ids == drafted, 0.0, target * weight)
    return tl.where(rest > 0.0, rest, 0.0)
