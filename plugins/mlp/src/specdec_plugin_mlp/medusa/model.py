"""Medusa heads."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from specdec_plugin_mlp.medusa.layout import MedusaLayout


class ResidualBlock(nn.Module):
    """Layers `x + SiLU(W x + b)`.

    Args:
        layout: sizes of the heads.
    """

    def __init__(self, layout: MedusaLayout) -> None:
        super().__init__()
        size = layout.hidden_size
        self.layers = nn.ModuleList(
            nn.Linear(size, size, bias=layout.medusa_fc_bias) for _ in range(layout.num_hidden_layers)
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return states `[..., H]`."""
        for layer in self.layers:
            states = states + F.silu(layer(states))
        return states


class Medusa(nn.Module):
    """Heads on the target's final state that predict independently of each other (Cai et al., arXiv 2401.10774).

    Head i predicts the token i + 1 positions after the one that the state chose. Parameter names are those that vLLM reads.

    Args:
        layout: sizes.
    """

    def __init__(self, layout: MedusaLayout) -> None:
        super().__init__()
        self.layout = layout
        self.blocks = nn.ModuleList(ResidualBlock(layout) for _ in range(layout.num_heads))
        count = 1 if layout.original_lm_head else layout.num_heads
        outputs = [nn.Linear(layout.hidden_size, layout.num_logits, bias=False) for _ in range(count)]
        self.lm_heads = nn.ModuleList(outputs * (layout.num_heads // count))

    @property
    def num_heads(self) -> int:
        """The most tokens that can be drafted one after another."""
        return self.layout.num_heads

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return the input of every head for the target's states `[..., H]` of any floating dtype."""
        return states.to(next(self.parameters()).dtype)

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one head.

        Args:
            index: index of the head.
            states: `[..., H]` from `begin`.
            token_ids: `[...]` not used by these heads.

        Returns:
            the same states for the next head, and logits `[..., V']`.
        """
        logits: torch.Tensor = self.lm_heads[index](self.blocks[index](states))
        return states, logits if self.layout.logit_scale == 1.0 else logits * self.layout.logit_scale

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Run all heads, for training.

        Args:
            states: `[..., H]` the target's final states.

        Returns:
            logits `[..., n, V']` of n heads; those at i predict the token i + 1 positions after the one of the state.
        """
        states = self.begin(states)
        return torch.stack([self.step(index, states, states)[1] for index in range(self.num_heads)], -2)
