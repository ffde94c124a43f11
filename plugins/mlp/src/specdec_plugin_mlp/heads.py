"""What a proposer asks of heads, whichever they are."""

from __future__ import annotations

from typing import Protocol

import torch


class Heads(Protocol):
    """Heads on the target's final hidden state; head i guesses the token i + 1 positions after the last committed one."""

    @property
    def num_heads(self) -> int:
        """How many tokens can be guessed one after another."""

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return what head 0 takes, of the states `[R, H]` that chose the last committed tokens."""

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one head.

        Args:
            index: which.
            states: `[R, D]` what `begin`, or the head before, returned.
            token_ids: `[R]` int64 the token before the one that is guessed.

        Returns:
            what the next head takes, `[R, D']`, and logits `[R, V']`.
        """
