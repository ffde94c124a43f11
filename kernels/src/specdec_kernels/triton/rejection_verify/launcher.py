"""Launches the kernels of rejection sampling."""

from __future__ import annotations

import torch
import triton

from specdec_kernels.triton.gumbel_sample.kernel import exact_type
from specdec_kernels.triton.launch import places_for
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify.config import LaunchConfig
from specdec_kernels.triton.rejection_verify.kernel import (
    accept_kernel,
    emit_kernel,
    residual_tile_kernel,
    row_sums_kernel,
)


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
            "width": self.width,
            "NUM_TILES": self.num_tiles,
            "BLOCK_TILES": triton.next_power_of_2(self.num_tiles),
        }
        self.block_n = places_for(self.width)
        shape = (self.size, self.width + 1, self.num_tiles)
        ids = torch.empty(shape, dtype=torch.int32, device=logits.device)
        self.sums = (*torch.empty((2, *shape), dtype=exact_type(logits), device=logits.device), ids)

    def sum_rows(self) -> None:
        """Write the sums of all tiles."""
        row_sums_kernel[(self.size * (self.width + 1), self.num_tiles)](
            *self.rows,
            *self.sums,
            width=self.width,
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
