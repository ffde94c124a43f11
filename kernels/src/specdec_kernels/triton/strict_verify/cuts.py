"""Top-k and top-p of rows from which a token was drawn: whether it is kept, and if not, a draw among the ids before it.

An id that is drawn among more ids than are kept, and is one of these, is the one drawn among these. If it is cut, so is all
that comes behind it, in the order of logits and then ids. Masses are summed as `process_logits` does, so cuts are the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import load_logits, race_tile, scaled_below
from specdec_kernels.triton.process_logits.kernel import find_rank, mass_before, wanted_of, weights_of


@triton.jit
def is_cut_by(top_k: tl.tensor, top_p: tl.tensor, temperature: tl.tensor, vocab_size: tl.tensor) -> tl.tensor:
    """Return whether these settings of a request cut anything."""
    return (temperature > 0.0) & (((top_k > 0) & (top_k < vocab_size)) | (top_p < 1.0))


@triton.jit
def is_before(logits: tl.tensor, ids: tl.tensor, border: tl.tensor, winner: tl.tensor) -> tl.tensor:
    """Return which ids come before the id `winner`, whose logit is `border`."""
    return (logits > border) | ((logits == border) & (ids < winner))


@triton.jit
def draw_before(
    row_ptr: tl.tensor,
    vocab_size: tl.tensor,
    border: tl.tensor,
    winner: tl.tensor,
    top: tl.tensor,
    divisor: tl.tensor,
    seed: tl.tensor,
    position: tl.tensor,
    sample: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> tl.tensor:
    """Return the id drawn among those before `winner` in a row whose best logit is `top`, by one pass."""
    best_score = tl.full((), -float("inf"), tl.float32)
    found = tl.full((), 0, tl.int64)
    for tile in range(0, tl.cdiv(vocab_size, BLOCK_V)):
        ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        logits = load_logits(row_ptr, ids, vocab_size, tl.float32)
        logits = tl.where(is_before(logits, ids, border, winner), logits, -float("inf"))
        best = tl.max(logits, 0)
        if best > -float("inf"):
            word = tl.full((), 0, tl.int64)
            score, index = race_tile(logits, best, divisor, True, seed, position, sample, word, tile, BLOCK_V)
            score += scaled_below(best, top, divisor)
            found = tl.where(score > best_score, index.to(tl.int64), found)
            best_score = tl.maximum(score, best_score)
    return found


@triton.jit
def mass_of_top_k(
    row_ptr: tl.tensor, vocab_size: tl.tensor, top_k: tl.tensor, BLOCK_V: tl.constexpr
) -> tl.tensor:
    """Return the mass of the ids that top-k keeps of a row, int64."""
    last, before = find_rank(row_ptr, vocab_size, top_k, BLOCK_V)
    weight = weights_of(-last.to(tl.float32, bitcast=True))
    return mass_before(row_ptr, vocab_size, last, BLOCK_V) + (top_k - before) * weight


@triton.jit
def kept_draw(
    row_ptr: tl.tensor,
    vocab_size: tl.tensor,
    winner: tl.tensor,
    rank: tl.tensor,
    before: tl.tensor,
    total: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    top: tl.tensor,
    divisor: tl.tensor,
    seed: tl.tensor,
    position: tl.tensor,
    sample: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> tl.tensor:
    """Return the id that is drawn from a row after its cuts, given the id `winner` that is drawn without them.

    `rank` and `before` are number and mass of the ids before it, `total` is the mass of all, int64.
    """
    has_top_k = (top_k > 0) & (top_k < vocab_size)
    of_top_k = tl.full((), -1, tl.int64)
    is_searched = True
    while is_searched:
        border = tl.load(row_ptr + winner)
        is_kept = (has_top_k == 0) | (rank < top_k)
        if is_kept & (top_p < 1.0):
            least = total
            if has_top_k:
                # The mass of the ids that top-k keeps has bounds; it is only looked for where these do not decide.
                weight = weights_of(border)
                least = before + weight
                most = tl.minimum(total, before + (top_k - rank) * weight)
                is_open = (before >= wanted_of(top_p, least)) & (before < wanted_of(top_p, most))
                if is_open & (of_top_k < 0):
                    of_top_k = mass_of_top_k(row_ptr, vocab_size, top_k, BLOCK_V)
                least = tl.where(of_top_k >= 0, of_top_k, least)
            is_kept = before < wanted_of(top_p, least)
        is_searched = is_kept == 0
        if is_searched:
            winner = draw_before(
                row_ptr, vocab_size, border, winner, top, divisor, seed, position, sample, BLOCK_V
            )
            border = tl.load(row_ptr + winner)
            ranks = tl.zeros((BLOCK_V,), tl.int64)
            masses = tl.zeros((BLOCK_V,), tl.int64)
            for start in range(0, vocab_size, BLOCK_V):
                ids = start + tl.arange(0, BLOCK_V)
                logits = load_logits(row_ptr, ids, vocab_size, tl.float32)
                comes_before = is_before(logits, ids, border, winner)
                ranks += comes_before.to(tl.int64)
                masses += tl.where(comes_before, weights_of(logits), 0)
            rank, before = tl.sum(ranks, 0), tl.sum(masses, 0)
    return winner
