"""Prompt lookup as two Triton kernels: the longest match in every tile of a text, then a copy from the best one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, power_of_two, roomy

_MAX_BLOCK = 4096
_LEAST_BLOCK = 16
LENGTH_UNIT = tl.constexpr(4294967296)
FARTHEST = tl.constexpr(2147483648)


@triton.jit
def _line(request: tl.tensor, lines_ptr: tl.tensor, HAS_LINES: tl.constexpr) -> tl.tensor:
    """Return which line has a request's text."""
    if HAS_LINES:
        request = tl.load(lines_ptr + request).to(tl.int64)
    return request


@triton.jit
def _length(num_tokens_ptr: tl.tensor, num_columns: tl.tensor) -> tl.tensor:
    """Return the number of tokens of a text, which is within its line whatever stands there."""
    return tl.minimum(tl.maximum(tl.load(num_tokens_ptr).to(tl.int64), 0), num_columns)


@triton.jit(do_not_specialize=["tokens_stride", "num_columns", "shortest", "longest", "num_tiles"])
def match_tile_kernel(
    tokens_ptr: tl.tensor,
    tokens_stride: tl.tensor,
    num_columns: tl.tensor,
    num_tokens_ptr: tl.tensor,
    lines_ptr: tl.tensor,
    score_ptr: tl.tensor,
    shortest: tl.tensor,
    longest: tl.tensor,
    num_tiles: tl.tensor,
    HAS_LINES: tl.constexpr,
    KEEPS_FIRST: tl.constexpr,
    BLOCK_L: tl.constexpr,
) -> None:
    """Write the best match of one tile as a score `[B, num_tiles]` int64: by length, then by position; 0 for none."""
    request = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    line = _line(request, lines_ptr, HAS_LINES)
    tokens_ptr += line * tokens_stride
    last = _length(num_tokens_ptr + line, num_columns) - 1
    ends = tile * BLOCK_L + tl.arange(0, BLOCK_L)
    lengths = tl.zeros((BLOCK_L,), tl.int64)
    agrees = ends < last
    back = tl.full((), 0, tl.int64)
    # Most tiles finish after a token or two, when no position matches any longer.
    while (back < longest) & (tl.max(agrees.to(tl.int32), 0) > 0):
        agrees = agrees & (ends >= back)
        wanted = tl.load(tokens_ptr + last - back, mask=last >= back, other=0)
        agrees = agrees & (tl.load(tokens_ptr + ends - back, mask=agrees, other=0) == wanted)
        lengths += agrees.to(tl.int64)
        back += 1
    sources = ends.to(tl.int64) + 1
    places = FARTHEST - sources if KEEPS_FIRST else sources
    scores = tl.where(lengths >= shortest, lengths * LENGTH_UNIT + places, 0)
    tl.store(score_ptr + request * num_tiles + tile, tl.max(scores, 0))


@triton.jit(do_not_specialize=["tokens_stride", "num_columns", "width", "num_tiles"])
def copy_match_kernel(
    tokens_ptr: tl.tensor,
    tokens_stride: tl.tensor,
    num_columns: tl.tensor,
    num_tokens_ptr: tl.tensor,
    max_nodes_ptr: tl.tensor,
    lines_ptr: tl.tensor,
    score_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    width: tl.tensor,
    num_tiles: tl.tensor,
    HAS_MAX_NODES: tl.constexpr,
    HAS_LINES: tl.constexpr,
    KEEPS_FIRST: tl.constexpr,
    FILLS: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Write the continuation of the best match of one request."""
    request = tl.program_id(0).to(tl.int64)
    tiles = tl.arange(0, BLOCK_TILES)
    score = tl.max(tl.load(score_ptr + request * num_tiles + tiles, mask=tiles < num_tiles, other=0), 0)
    place = score % LENGTH_UNIT
    source = FARTHEST - place if KEEPS_FIRST else place
    line = _line(request, lines_ptr, HAS_LINES)
    num_tokens = _length(num_tokens_ptr + line, num_columns)
    # A draft that reaches the end of the text continues with its own first token.
    period = tl.maximum(num_tokens - source, 1)
    count = tl.full((), 0, tl.int64) + width
    if HAS_MAX_NODES:
        count = tl.minimum(count, tl.maximum(tl.load(max_nodes_ptr + request).to(tl.int64), 0))
    if KEEPS_FIRST:
        count = tl.minimum(count, period)
    count = tl.where(score > 0, count, 0)
    steps = tl.arange(0, BLOCK_N)
    read = source + steps % period
    tokens_ptr += line * tokens_stride
    drafted = tl.load(tokens_ptr + read, mask=steps < count, other=-1).to(tl.int64)
    if FILLS:
        last = tl.load(tokens_ptr + tl.maximum(num_tokens - 1, 0)).to(tl.int64)
        drafted = tl.where(steps < count, drafted, last)
    tl.store(token_ids_ptr + request * width + steps, drafted, mask=steps < width)
    tl.store(num_nodes_ptr + request, count)


def heuristic(width: int) -> LaunchConfig:
    """Return how many positions of a text in a buffer of `width` columns a program compares."""
    return LaunchConfig(power_of_two(width, 16, _MAX_BLOCK), 4)


def ngram_match_triton(
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    max_nodes: torch.Tensor | None,
    lines: torch.Tensor | None,
    shortest: int,
    longest: int,
    keeps_first: bool,
    fills: bool,
    token_ids: torch.Tensor,
    num_nodes: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch both kernels; writes `token_ids [B, width]` and `num_nodes [B]`."""
    (size, width), columns = token_ids.shape, tokens.shape[1]
    config = config or heuristic(columns)
    num_tiles = config.num_tiles(columns)
    scores = torch.empty((size, num_tiles), dtype=torch.int64, device=tokens.device)
    match_tile_kernel[(size, num_tiles)](
        tokens,
        tokens.stride(0),
        columns,
        num_tokens,
        num_tokens if lines is None else lines,
        scores,
        shortest,
        longest,
        num_tiles,
        HAS_LINES=lines is not None,
        KEEPS_FIRST=keeps_first,
        BLOCK_L=config.block,
        num_warps=config.num_warps,
    )
    copy_match_kernel[(size,)](
        tokens,
        tokens.stride(0),
        columns,
        num_tokens,
        num_tokens if max_nodes is None else max_nodes,
        num_tokens if lines is None else lines,
        scores,
        token_ids,
        num_nodes,
        width,
        num_tiles,
        HAS_MAX_NODES=max_nodes is not None,
        HAS_LINES=lines is not None,
        KEEPS_FIRST=keeps_first,
        FILLS=fills,
        BLOCK_TILES=roomy(num_tiles, _LEAST_BLOCK),
        BLOCK_N=roomy(width, _LEAST_BLOCK),
        num_warps=1,
    )
