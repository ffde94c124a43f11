"""Philox noise in Triton: device functions for the operations' draws, and a kernel that writes noise to memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.noise.config import LaunchConfig, heuristic
from specdec_kernels.triton.noise.keys import NoiseKeys


@triton.jit
def noise_words(
    seed: tl.tensor,
    position: tl.tensor,
    sample: tl.tensor,
    word: tl.tensor,
    tile: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> tl.tensor:
    """Return 32-bit noise `[BLOCK_V]` uint32 for the ids of one tile; the keys are scalars."""
    blocks = (tile * (BLOCK_V // 4) + tl.arange(0, BLOCK_V // 4)).to(tl.uint32)
    zeros = tl.zeros_like(blocks)
    lane0, lane1, lane2, lane3 = tl.philox(
        seed.to(tl.int64),
        blocks,
        zeros + position.to(tl.uint32),
        zeros + sample.to(tl.uint32),
        zeros + word.to(tl.uint32),
    )
    return tl.interleave(tl.interleave(lane0, lane2), tl.interleave(lane1, lane3))


@triton.jit
def uniforms_of(words: tl.tensor) -> tl.tensor:
    """Return `(i + 0.5) / 2^32` of 32-bit noise i, float64, without rounding."""
    return (words.to(tl.float64) + 0.5) * (1.0 / 4294967296.0)


@triton.jit
def exponentials_of(words: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Return `-log(1 - u)`, exact to a few units in the last place of DTYPE at both ends."""
    if DTYPE.is_fp64():
        return -tl.log(1.0 - uniforms_of(words))  # 1 - u has 33 bits and is exact
    else:
        is_low = words < 2147483648
        uniforms = (words.to(tl.float32) + 0.5) * (1.0 / 4294967296.0)
        above = ((words ^ 4294967295).to(tl.float32) + 0.5) * (1.0 / 4294967296.0)
        rest = tl.where(is_low, 1.0 - uniforms, above)
        # The factor u / (1 - rest) corrects the rounding of 1 - u, as in log1p.
        lost = tl.where(is_low, 1.0 - rest, 1.0)
        factor = tl.where(is_low, uniforms, 1.0) / tl.where(lost > 0.0, lost, 1.0)
        return tl.where(lost > 0.0, -tl.log(rest) * factor, uniforms)


@triton.jit(do_not_specialize_on_alignment=["positions_ptr", "samples_ptr", "words_ptr"])
def noise_kernel(
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    samples_ptr: tl.tensor,
    words_ptr: tl.tensor,
    out_ptr: tl.tensor,
    out_stride: tl.tensor,
    num_ids: tl.tensor,
    IS_GUMBEL: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write one tile of one row: uniforms, or Gumbel noise in the precision of the output."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    words = noise_words(
        tl.load(seeds_ptr + row),
        tl.load(positions_ptr + row),
        tl.load(samples_ptr + row),
        tl.load(words_ptr + row),
        tile,
        BLOCK_V,
    )
    if IS_GUMBEL:
        noise = -tl.log(exponentials_of(words, out_ptr.dtype.element_ty))
    else:
        noise = uniforms_of(words)
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    tl.store(out_ptr + row * out_stride + ids, noise, mask=ids < num_ids)


def noise_triton(
    keys: NoiseKeys, words: torch.Tensor, out: torch.Tensor, config: LaunchConfig | None, *, is_gumbel: bool
) -> None:
    """Launch the kernel; writes `[R, V]`."""
    num_rows, num_ids = out.shape
    config = config or heuristic(num_ids)
    noise_kernel[(num_rows, config.num_tiles(num_ids))](
        *keys,
        words,
        out,
        out.stride(0),
        num_ids,
        IS_GUMBEL=is_gumbel,
        BLOCK_V=config.block,
        num_warps=config.num_warps,
    )
