"""The interface between a proposer and its heads."""

from __future__ import annotations

from typing import Protocol

import torch


class Heads(Protocol):
    """Heads on the target's final hidden state; head i predicts the token i + 1 positions after the last committed one."""

    @property
    def num_heads(self) -> int:
        """The most tokens that can be drafted one after another."""

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return the input of head 0 for the states `[R, H]` that chose the last committed tokens."""

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one head.

        Args:
            index: index of the head.
            states: `[R, D]` states returned by `begin` or the previous head.
            token_ids: `[R]` int64 tokens before the predicted ones.

        Returns:
            the input of the next head, `[R, D']`, and logits `[R, V']`.
        """
