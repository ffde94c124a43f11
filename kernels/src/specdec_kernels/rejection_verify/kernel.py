"""Rejection sampling along chains as four Triton kernels.

They compute the sums of every tile of every row, the acceptance tests per request, a draw in every tile of the residual,
and its winner. p is never written to memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.gumbel_sample.kernel import exact_type, heated_below, load_divisor, load_logits
from specdec_kernels.noise.kernel import exponentials_of, noise_words, uniforms_of
from specdec_kernels.noise.keys import NoiseKeys
from specdec_kernels.rejection_verify.config import LaunchConfig

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


@triton.jit
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
    WIDTH: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write best logit, sum of exponentials relative to it and best id of one tile of a row, `[B, WIDTH + 1, NUM_TILES]`."""
    program = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    request = program // (WIDTH + 1)
    place = program % (WIDTH + 1)
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


@triton.jit
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
    WIDTH: tl.constexpr,
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
        place = request * (WIDTH + 1) + num_accepted
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


@triton.jit
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
    WIDTH: tl.constexpr,
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
        place = request * (WIDTH + 1) + accepted
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


@triton.jit
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
    WIDTH: tl.constexpr,
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
        place = request * (WIDTH + 1) + accepted
        token = row_norm(best_ptr, mass_ptr, id_ptr, place, divisor, NUM_TILES, BLOCK_TILES)[2]
    places = tl.arange(0, BLOCK_N)
    drafted = tl.load(draft_ptr + request * draft_stride + places, mask=places < accepted, other=-1)
    tokens = tl.where(places == accepted, token, drafted.to(tl.int64))
    tl.store(token_ids_ptr + request * (WIDTH + 1) + places, tokens, mask=places <= WIDTH)


class Launcher:
    """Launches the kernels of one call; block verification also uses some of them.

    Args:
        logits: see `rejection_verify` for this and the others.
        draft_token_ids: drafted ids.
        row_starts: first rows.
        num_nodes: drafted tokens.
        temperatures: of requests.
        keys: of requests.
        draft_probs: q, or None.
        has_probs: which requests have q, or None for all.
        config: launch parameters.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        draft_token_ids: torch.Tensor,
        row_starts: torch.Tensor,
        num_nodes: torch.Tensor,
        temperatures: torch.Tensor,
        keys: NoiseKeys,
        draft_probs: torch.Tensor | None,
        has_probs: torch.Tensor | None,
        config: LaunchConfig,
    ) -> None:
        self.size, self.width = draft_token_ids.shape
        self.config = config
        self.num_tiles = config.num_tiles(logits.shape[1])
        self.rows = (logits, logits.stride(0), logits.shape[1], row_starts, num_nodes, temperatures)
        self.keys = keys
        self.draft = (draft_token_ids, draft_token_ids.stride(0))
        q = logits[:, :, None] if draft_probs is None else draft_probs  # without q nothing is read
        self.q = (q, q.stride(0), q.stride(1), q.shape[2], num_nodes if has_probs is None else has_probs)
        self.has_q = {"HAS_Q": draft_probs is not None, "HAS_FLAGS": has_probs is not None}
        self.tiles = {
            "WIDTH": self.width,
            "NUM_TILES": self.num_tiles,
            "BLOCK_TILES": triton.next_power_of_2(self.num_tiles),
        }
        self.block_n = triton.next_power_of_2(self.width + 1)
        shape = (self.size, self.width + 1, self.num_tiles)
        ids = torch.empty(shape, dtype=torch.int32, device=logits.device)
        self.sums = (*torch.empty((2, *shape), dtype=exact_type(logits), device=logits.device), ids)

    def sum_rows(self) -> None:
        """Write the sums of all tiles."""
        row_sums_kernel[(self.size * (self.width + 1), self.num_tiles)](
            *self.rows,
            *self.sums,
            WIDTH=self.width,
            NUM_TILES=self.num_tiles,
            BLOCK_V=self.config.block_v,
            num_warps=self.config.num_warps,
        )

    def accept(self, num_accepted: torch.Tensor) -> None:
        """Write `num_accepted [B]` by rejection sampling."""
        accept_kernel[(self.size,)](
            *self.rows, *self.keys, *self.draft, *self.q, *self.sums, num_accepted,
            **self.tiles, **self.has_q, BLOCK_N=self.block_n, num_warps=1,
        )  # fmt: skip

    def emit(self, num_accepted: torch.Tensor, weights: torch.Tensor | None, token_ids: torch.Tensor) -> None:
        """Write `token_ids [B, K + 1]`; `weights [B, K + 1]` are P at every position, or None for 1."""
        best = self.sums[0]
        score = best.new_empty((2, self.size, self.num_tiles))
        winner = torch.empty_like(score, dtype=torch.int32)
        residual_tile_kernel[(self.size, self.num_tiles)](
            *self.rows, *self.keys, *self.draft, *self.q, *self.sums, best if weights is None else weights,
            num_accepted, score, winner, **self.tiles, **self.has_q, HAS_WEIGHTS=weights is not None,
            BLOCK_V=self.config.block_v, num_warps=self.config.num_warps,
        )  # fmt: skip
        emit_kernel[(self.size,)](
            self.rows[-1], *self.draft, *self.sums, score, winner, num_accepted, token_ids,
            **self.tiles, BLOCK_N=self.block_n, num_warps=1,
        )  # fmt: skip


def rejection_verify_triton(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor | None,
    has_probs: torch.Tensor | None,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    config: LaunchConfig,
) -> None:
    """Launch the kernels; writes `num_accepted [B]` and `token_ids [B, K + 1]`."""
    launcher = Launcher(
        logits,
        draft_token_ids,
        row_starts,
        num_nodes,
        temperatures,
        keys,
        draft_probs,
        has_probs,
        config,
    )
    launcher.sum_rows()
    launcher.accept(num_accepted)
    launcher.emit(num_accepted, None, token_ids)
