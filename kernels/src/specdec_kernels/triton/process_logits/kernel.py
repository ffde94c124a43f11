"""Temperature and truncation as Triton kernels: one for all, or without top-k and top-p two that divide a row into tiles.

The cuts do not sort. Scaled logits are at most 0, so the bits of their magnitude, read as integers, have the order of the
logits. The integer at the cut of top-k is found by histograms of three digits, that of top-p two bits at a time, by summing
weights below three candidates.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.gumbel_sample.kernel import load_divisor
from specdec_kernels.triton.process_logits.config import LaunchConfig, heuristic
from specdec_kernels.triton.process_logits.parameters import Cuts

WEIGHT_ONE = tl.constexpr(1099511627776.0)
PADDING_KEY = tl.constexpr(4294967295)


@triton.jit
def load_wide(
    logits_ptr: tl.tensor, row_stride: tl.tensor, vocab_size: tl.tensor, row: tl.tensor, ids: tl.tensor
) -> tl.tensor:
    """Return logits of one row in float32; -inf for ids outside."""
    row_ptr = logits_ptr + row * row_stride
    return tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf")).to(tl.float32)


@triton.jit
def best_of(logits: tl.tensor) -> tl.tensor:
    """Return the best of some logits; NaN if one is."""
    best = tl.max(tl.where(logits != logits, -float("inf"), logits), 0)
    return tl.where(tl.max((logits != logits).to(tl.int32), 0) > 0, float("nan"), best)


@triton.jit
def scaled(
    row_ptr: tl.tensor,
    ids: tl.tensor,
    vocab_size: tl.tensor,
    best: tl.tensor,
    temperatures_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    row: tl.tensor,
    has_min_p: tl.tensor,
) -> tl.tensor:
    """Return logits of one row less its best one, divided by the temperature, after min-p."""
    logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf"))
    divisor = tl.zeros_like(logits) + load_divisor(temperatures_ptr, row, tl.float32)
    found = tl.where(logits == best, 0.0, tl.div_rn(logits - best, divisor))
    found = tl.where(logits == -float("inf"), -float("inf"), found)
    if has_min_p != 0:
        min_p = tl.load(min_p_ptr + row)
        floor = tl.where(min_p > 0.0, tl.log(tl.where(min_p > 0.0, min_p, 1.0)), -float("inf"))
        found = tl.where(found < floor, -float("inf"), found)
    return found


@triton.jit
def widen_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    out_ptr: tl.tensor,
    out_stride: tl.tensor,
    best_ptr: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write one tile of one row in float32, and its best logit to `[R, NUM_TILES]`."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = load_wide(logits_ptr, row_stride, vocab_size, row, ids)
    tl.store(out_ptr + row * out_stride + ids, logits, mask=ids < vocab_size)
    tl.store(best_ptr + row * NUM_TILES + tile, best_of(logits))


@triton.jit
def best_of_row(
    best_ptr: tl.tensor, row: tl.tensor, NUM_TILES: tl.constexpr, BLOCK_TILES: tl.constexpr
) -> tl.tensor:
    """Return a row's best logit; NaN if it has one."""
    tiles = tl.arange(0, BLOCK_TILES)
    return best_of(tl.load(best_ptr + row * NUM_TILES + tiles, mask=tiles < NUM_TILES, other=-float("inf")))


@triton.jit(do_not_specialize=["has_min_p"])
def temperature_kernel(
    out_ptr: tl.tensor,
    out_stride: tl.tensor,
    vocab_size: tl.tensor,
    best_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    has_min_p: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Subtract the row's best logit from one tile, divide by the temperature and apply min-p; in place."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(temperatures_ptr + row) > 0.0:
        best = best_of_row(best_ptr, row, NUM_TILES, BLOCK_TILES)
        ids = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
        row_ptr = out_ptr + row * out_stride
        found = scaled(row_ptr, ids, vocab_size, best, temperatures_ptr, min_p_ptr, row, has_min_p)
        tl.store(row_ptr + ids, found, mask=ids < vocab_size)


@triton.jit
def load_keys(row_ptr: tl.tensor, ids: tl.tensor, vocab_size: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return scaled logits and integer keys that increase as the logits decrease; ids outside have the greatest key."""
    logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=-float("inf"))
    keys = tl.abs(logits).to(tl.uint32, bitcast=True)
    return logits, tl.where(ids < vocab_size, keys, PADDING_KEY)


@triton.jit
def weights_of(logits: tl.tensor) -> tl.tensor:
    """Return `exp(logits)` as fixed-point integers, int64."""
    return (tl.exp(logits) * WEIGHT_ONE).to(tl.int64)


@triton.jit
def wanted_of(top_p: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Return the mass that top-p keeps at least, of a total in fixed-point integers: an id is kept if less comes before it."""
    return tl.maximum(tl.ceil(top_p.to(tl.float64) * total.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def mass_before(
    row_ptr: tl.tensor, vocab_size: tl.tensor, key: tl.tensor, BLOCK_V: tl.constexpr
) -> tl.tensor:
    """Return the total weight of the ids of a row with a smaller key, int64."""
    total = tl.zeros((BLOCK_V,), tl.int64)
    for start in range(0, vocab_size, BLOCK_V):
        logits, keys = load_keys(row_ptr, start + tl.arange(0, BLOCK_V), vocab_size)
        total += tl.where(keys < key, weights_of(logits), 0)
    return tl.sum(total, 0)


@triton.jit
def next_digit(
    row_ptr: tl.tensor,
    vocab_size: tl.tensor,
    rank: tl.tensor,
    found: tl.tensor,
    before: tl.tensor,
    SHIFT: tl.constexpr,
    NUM_BINS: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Return a key with one more digit of that of an id, and the number of ids with smaller keys; see `find_rank`."""
    bins = tl.arange(0, NUM_BINS)
    counts = tl.zeros((NUM_BINS,), tl.int32)
    for start in range(0, vocab_size, BLOCK_V):
        keys = load_keys(row_ptr, start + tl.arange(0, BLOCK_V), vocab_size)[1]
        digits = (keys - found) >> SHIFT
        counts += tl.histogram(digits.to(tl.int32), NUM_BINS, mask=(keys >= found) & (digits < NUM_BINS))
    digit = tl.sum((before + tl.cumsum(counts, 0) < rank).to(tl.int32), 0)
    before += tl.sum(tl.where(bins < digit, counts, 0), 0)
    return found + (digit.to(tl.uint32) << SHIFT), before


@triton.jit
def find_rank(
    row_ptr: tl.tensor, vocab_size: tl.tensor, rank: tl.tensor, BLOCK_V: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return the key of an id by its rank, from 1 on, and the number of ids with smaller keys, by three passes."""
    found = tl.full((), 0, tl.uint32)
    before = tl.full((), 0, tl.int64)
    found, before = next_digit(row_ptr, vocab_size, rank, found, before, 21, 2048, BLOCK_V)
    found, before = next_digit(row_ptr, vocab_size, rank, found, before, 10, 2048, BLOCK_V)
    found, before = next_digit(row_ptr, vocab_size, rank, found, before, 0, 1024, BLOCK_V)
    return found, before


@triton.jit
def find_key(
    row_ptr: tl.tensor, vocab_size: tl.tensor, bound: tl.tensor, greatest: tl.tensor, BLOCK_V: tl.constexpr
) -> tl.tensor:
    """Return the greatest key, at most `greatest`, below which there is less weight than `bound`."""
    found = tl.full((), 0, tl.uint32)
    one = tl.full((), 1, tl.uint32)
    shift = tl.full((), 32, tl.uint32)
    for _ in range(16):
        shift -= 2
        key1 = found | (one << shift)
        key2 = found | ((one + 1) << shift)
        key3 = found | ((one + 2) << shift)
        before1 = tl.zeros((BLOCK_V,), tl.int64)
        before2 = tl.zeros((BLOCK_V,), tl.int64)
        before3 = tl.zeros((BLOCK_V,), tl.int64)
        for start in range(0, vocab_size, BLOCK_V):
            logits, keys = load_keys(row_ptr, start + tl.arange(0, BLOCK_V), vocab_size)
            weights = weights_of(logits)
            before1 += tl.where(keys < key1, weights, 0)
            before2 += tl.where(keys < key2, weights, 0)
            before3 += tl.where(keys < key3, weights, 0)
        digit = ((tl.sum(before1, 0) < bound) & (key1 <= greatest)).to(tl.uint32)
        digit += ((tl.sum(before2, 0) < bound) & (key2 <= greatest)).to(tl.uint32)
        digit += ((tl.sum(before3, 0) < bound) & (key3 <= greatest)).to(tl.uint32)
        found = found | (digit << shift)
    return found


@triton.jit(do_not_specialize=["has_min_p", "has_top_k", "has_top_p"])
def cut_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    out_ptr: tl.tensor,
    out_stride: tl.tensor,
    temperatures_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    has_min_p: tl.tensor,
    has_top_k: tl.tensor,
    has_top_p: tl.tensor,
    BLOCK_V: tl.constexpr,
) -> None:
    """Do all of it for one row: heat it, then cut it by top-k, then by top-p. A row that has a NaN is not cut.

    What one pass over the row writes other threads read in the next one, hence the barriers.
    """
    row = tl.program_id(0).to(tl.int64)
    row_ptr = out_ptr + row * out_stride
    bests = tl.full((BLOCK_V,), -float("inf"), tl.float32)
    for start in range(0, vocab_size, BLOCK_V):
        ids = start + tl.arange(0, BLOCK_V)
        logits = load_wide(logits_ptr, row_stride, vocab_size, row, ids)
        tl.store(row_ptr + ids, logits, mask=ids < vocab_size)
        is_kept = (bests != bests) | (logits <= bests)  # a NaN stays, and one that comes is taken
        bests = tl.where(is_kept, bests, logits)
    best = best_of(bests)
    is_heated = tl.load(temperatures_ptr + row) > 0.0
    if is_heated:
        tl.debug_barrier()
        for start in range(0, vocab_size, BLOCK_V):
            ids = start + tl.arange(0, BLOCK_V)
            found = scaled(row_ptr, ids, vocab_size, best, temperatures_ptr, min_p_ptr, row, has_min_p)
            tl.store(row_ptr + ids, found, mask=ids < vocab_size)
        tl.debug_barrier()
    is_heated = is_heated & (best == best)
    top_k = tl.full((), 0, tl.int64)
    if has_top_k != 0:
        top_k = tl.load(top_k_ptr + row).to(tl.int64)
    is_cut_to_k = is_heated & (top_k > 0) & (top_k < vocab_size)
    top_p = tl.full((), 1.0, tl.float32)
    if has_top_p != 0:
        top_p = tl.load(top_p_ptr + row)
    is_cut_to_p = is_heated & (top_p < 1.0)
    last = tl.full((), PADDING_KEY, tl.uint32)  # ids with smaller keys are kept
    room = tl.full((), 0, tl.int64)  # and this many ids with exactly this key
    if is_cut_to_k:
        last, before = find_rank(row_ptr, vocab_size, top_k, BLOCK_V)
        room = top_k - before
    if is_cut_to_p:
        weight = weights_of(-last.to(tl.float32, bitcast=True)) if is_cut_to_k else tl.full((), 0, tl.int64)
        total = mass_before(row_ptr, vocab_size, last, BLOCK_V) + room * weight
        wanted = wanted_of(top_p, total)
        key = find_key(row_ptr, vocab_size, wanted, last, BLOCK_V)
        missing = wanted - mass_before(row_ptr, vocab_size, key, BLOCK_V)
        weight = weights_of(-key.to(tl.float32, bitcast=True))
        room = (missing + weight - 1) // tl.maximum(weight, 1)  # at most what top-k kept, since `wanted` is
        last = key
    if is_cut_to_k | is_cut_to_p:
        num_equal = tl.full((), 0, tl.int64)
        for start in range(0, vocab_size, BLOCK_V):
            ids = start + tl.arange(0, BLOCK_V)
            logits, keys = load_keys(row_ptr, ids, vocab_size)
            is_equal = (keys == last).to(tl.int32)
            rank = num_equal + tl.cumsum(is_equal, 0)  # from 1
            is_kept = (keys < last) | ((keys == last) & (rank <= room))
            tl.store(row_ptr + ids, tl.where(is_kept, logits, -float("inf")), mask=ids < vocab_size)
            num_equal += tl.sum(is_equal, 0)


def process_logits_triton(
    logits: torch.Tensor, cuts: Cuts, out: torch.Tensor, config: LaunchConfig | None
) -> None:
    """Launch the required kernels; writes `[R, V]`."""
    num_rows, vocab_size = logits.shape
    config = config or heuristic(vocab_size)
    given = (logits, logits.stride(0), vocab_size, out, out.stride(0))
    # Missing arguments are not read; what stands for them has their dtype.
    min_p = cuts.temperatures if cuts.min_p is None else cuts.min_p
    if cuts.top_k is not None or cuts.top_p is not None:
        cut_kernel[(num_rows,)](
            *given,
            cuts.temperatures,
            min_p,
            torch.empty(1, dtype=torch.int64, device=logits.device) if cuts.top_k is None else cuts.top_k,
            cuts.temperatures if cuts.top_p is None else cuts.top_p,
            int(cuts.min_p is not None),
            int(cuts.top_k is not None),
            int(cuts.top_p is not None),
            BLOCK_V=config.cut_block,
            num_warps=config.cut_num_warps,
            enable_fp_fusion=False,
        )
        return
    num_tiles = config.num_tiles(vocab_size)
    best = torch.empty((num_rows, num_tiles), dtype=torch.float32, device=logits.device)
    tiles = {"NUM_TILES": num_tiles, "BLOCK_V": config.block, "num_warps": config.num_warps}
    widen_kernel[(num_rows, num_tiles)](*given, best, **tiles, enable_fp_fusion=False)
    temperature_kernel[(num_rows, num_tiles)](
        out,
        out.stride(0),
        vocab_size,
        best,
        cuts.temperatures,
        min_p,
        int(cuts.min_p is not None),
        BLOCK_TILES=triton.next_power_of_2(num_tiles),
        **tiles,
        enable_fp_fusion=False,
    )
