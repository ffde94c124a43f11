"""Sampling with Gumbel noise as two Triton kernels: an argmax over every tile of a row, then one over its tiles."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.noise.config import LaunchConfig, heuristic
from specdec_kernels.triton.noise.kernel import exponentials_of, noise_words
from specdec_kernels.triton.noise.keys import NoiseKeys


@triton.jit
def load_logits(row_ptr: tl.tensor, ids: tl.tensor, vocab_size: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Return the logits of some ids of a row in DTYPE; NaN and ids outside the vocabulary are -inf."""
    logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf")).to(DTYPE)
    return tl.where(logits != logits, -float("inf"), logits)


@triton.jit
def load_divisor(temperatures_ptr: tl.tensor, index: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Return the temperature to divide by, clamped to the normal numbers of float32; 1 if the temperature is 0."""
    temperature = tl.load(temperatures_ptr + index)
    limited = tl.minimum(tl.maximum(temperature, 1.1754943508222875e-38), 3.4028234663852886e38)
    return tl.where(temperature > 0.0, limited, 1.0).to(DTYPE)


@triton.jit
def scaled_below(logits: tl.tensor, best: tl.tensor, divisor: tl.tensor) -> tl.tensor:
    """Return `(logits - best) / divisor`; -inf stays -inf, and a best of +inf gives 0."""
    below = tl.where(logits == best, 0.0, (logits - best) / divisor)
    return tl.where(logits == -float("inf"), -float("inf"), below)


@triton.jit
def race_tile(
    logits: tl.tensor,
    best: tl.tensor,
    divisor: tl.tensor,
    is_sampled: tl.tensor,
    seed: tl.tensor,
    position: tl.tensor,
    sample: tl.tensor,
    word: tl.tensor,
    tile: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Return the greatest score of one tile, including noise, and its lowest id; scores are relative to `best`."""
    scores = scaled_below(logits, best, divisor)
    if is_sampled:
        words = noise_words(seed, position, sample, word, tile, BLOCK_V)
        scores -= tl.log(exponentials_of(words, logits.dtype))
    score, index = tl.max(scores, 0, return_indices=True, return_indices_tie_break_left=True)
    return score, tile * BLOCK_V + index


@triton.jit
def tile_winner(
    best: tl.tensor, score: tl.tensor, ids: tl.tensor, divisor: tl.tensor, tiles: tl.tensor
) -> tl.tensor:
    """Return the winner of a row from the best logits, scores and ids of its tiles; ties go to the first tile."""
    scores = scaled_below(best, tl.max(best, 0), divisor) + score
    scores = tl.where(best == -float("inf"), -float("inf"), scores)
    first = tl.max(scores, 0, return_indices=True, return_indices_tie_break_left=True)[1]
    return tl.sum(tl.where(tiles == first, ids, 0), 0).to(tl.int64)


@triton.jit(do_not_specialize_on_alignment=["score_ptr"])
def sample_tile_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    temperatures_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    words_ptr: tl.tensor,
    best_ptr: tl.tensor,
    score_ptr: tl.tensor,
    id_ptr: tl.tensor,
    HAS_WORDS: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write the best logit of one tile of one row, and score and id of its winner, to `[R, NUM_TILES]`."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    dtype = best_ptr.dtype.element_ty
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = load_logits(logits_ptr + row * row_stride, ids, vocab_size, dtype)
    best = tl.max(logits, 0)
    if HAS_WORDS:
        word = tl.load(words_ptr + row)
    else:
        word = tl.full((), 0, tl.int64)
    score, winner = race_tile(
        logits,
        best,
        load_divisor(temperatures_ptr, row, dtype),
        tl.load(temperatures_ptr + row) > 0.0,
        tl.load(seeds_ptr + row),
        tl.load(positions_ptr + row),
        tl.load(samples_ptr + row),
        word,
        tile,
        BLOCK_V,
    )
    tl.store(best_ptr + row * NUM_TILES + tile, best)
    tl.store(score_ptr + row * NUM_TILES + tile, score)
    tl.store(id_ptr + row * NUM_TILES + tile, winner)


@triton.jit(do_not_specialize_on_alignment=["score_ptr"])
def row_winner_kernel(
    temperatures_ptr: tl.tensor,
    best_ptr: tl.tensor,
    score_ptr: tl.tensor,
    id_ptr: tl.tensor,
    out_ptr: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
) -> None:
    """Write the winner of one row."""
    row = tl.program_id(0).to(tl.int64)
    tiles = tl.arange(0, BLOCK_TILES)
    in_row = tiles < NUM_TILES
    offsets = row * NUM_TILES + tiles
    best = tl.load(best_ptr + offsets, mask=in_row, other=-float("inf"))
    score = tl.load(score_ptr + offsets, mask=in_row, other=-float("inf"))
    ids = tl.load(id_ptr + offsets, mask=in_row, other=0)
    divisor = load_divisor(temperatures_ptr, row, best_ptr.dtype.element_ty)
    tl.store(out_ptr + row, tile_winner(best, score, ids, divisor, tiles))


def gumbel_sample_triton(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    words: torch.Tensor | None,
    out: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch both kernels; writes `[R]`."""
    num_rows, vocab_size = logits.shape
    config = config or heuristic(vocab_size)
    num_tiles = config.num_tiles(vocab_size)
    best, score = torch.empty(
        (2, num_rows, num_tiles), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device
    )
    ids = torch.empty((num_rows, num_tiles), dtype=torch.int32, device=logits.device)
    sample_tile_kernel[(num_rows, num_tiles)](
        logits,
        logits.stride(0),
        vocab_size,
        temperatures,
        *keys,
        words,
        best,
        score,
        ids,
        HAS_WORDS=words is not None,
        NUM_TILES=num_tiles,
        BLOCK_V=config.block,
        num_warps=config.num_warps,
    )
    row_winner_kernel[(num_rows,)](
        temperatures,
        best,
        score,
        ids,
        out,
        NUM_TILES=num_tiles,
        BLOCK_TILES=triton.next_power_of_2(num_tiles),
        num_warps=1,
    )
