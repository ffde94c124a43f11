"""Launches the kernels of rejection sampling."""

from __future__ import annotations

import torch
import triton

from specdec_kernels.triton.gumbel_sample.kernel import exact_type
from specdec_kernels.triton.last_program import arrival_counts
from specdec_kernels.triton.launch import places_for
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify.config import LaunchConfig
from specdec_kernels.triton.rejection_verify.kernel import residual_and_emit_kernel, sum_and_accept_kernel


class Launcher:
    """What the kernels of one call share; those of block verification too.

    Args:
        logits: see `rejection_verify` for this and the others.
        draft_token_ids: drafted ids.
        row_starts: first rows.
        num_nodes: drafted tokens.
        temperatures: of requests.
        keys: of requests.
        draft_probs: q, or None.
        has_probs: which requests have q, or None for all.
        draft_ids: of the target's, or None where they are the same.
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
        draft_ids: torch.Tensor | None,
        config: LaunchConfig,
    ) -> None:
        self.size, self.width = draft_token_ids.shape
        num_tiles = config.num_tiles(logits.shape[1])
        self.tile_grid = self.size * (self.width + 1), num_tiles
        shape = (self.size, self.width + 1, num_tiles)
        ids = torch.empty(shape, dtype=torch.int32, device=logits.device)
        sums = torch.empty((2, *shape), dtype=exact_type(logits), device=logits.device)
        q = logits[:, :, None] if draft_probs is None else draft_probs  # without q nothing is read
        flags = num_nodes if has_probs is None else has_probs
        self.given = (
            logits, logits.stride(0), logits.shape[1], row_starts, num_nodes, temperatures, *keys, draft_token_ids,
            draft_token_ids.stride(0), q, q.stride(0), q.stride(1), q.shape[2], flags,
            num_nodes if draft_ids is None else draft_ids, *sums, ids, arrival_counts(self.size, logits.device),
        )  # fmt: skip
        """The first arguments of every kernel."""
        self.options = {
            "width": self.width,
            "HAS_Q": draft_probs is not None,
            "HAS_FLAGS": has_probs is not None,
            "HAS_MAP": draft_ids is not None,
            "NUM_TILES": num_tiles,
            "BLOCK_TILES": triton.next_power_of_2(num_tiles),
            "BLOCK_V": config.block_v,
            "BLOCK_N": places_for(self.width),
            "num_warps": config.num_warps,
        }
        """Their last ones."""
        self.by_row = sums[0]
        """`[B, K + 1, NUM_TILES]`, of the shape and dtype of sums."""

    def emit(
        self,
        weights: torch.Tensor | None,
        num_accepted: torch.Tensor,
        token_ids: torch.Tensor,
        first_unsound: torch.Tensor,
    ) -> None:
        """Write `token_ids [B, K + 1]` and `first_unsound [B]`; `weights [B, K + 1]` are P at every position, or None for 1."""
        score = self.by_row.new_empty((self.size, 2, self.tile_grid[1]))
        winner = torch.empty_like(score, dtype=torch.int32)
        residual_and_emit_kernel[(self.size, self.tile_grid[1])](
            *self.given, score if weights is None else weights, num_accepted, score, winner, token_ids, first_unsound,
            HAS_WEIGHTS=weights is not None, **self.options,
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
    sum_and_accept_kernel[launcher.tile_grid](*launcher.given, num_accepted, **launcher.options)
    launcher.emit(None, num_accepted, token_ids, first_unsound)
