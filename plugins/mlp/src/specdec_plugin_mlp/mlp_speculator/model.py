"""The heads of an MLP speculator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout

_MAX_PLAIN_SIZE = 8192
"""Up to this many elements the activation uses operations that stay on one thread."""


class ScaleNorm(nn.Module):
    """Root-mean-square norm with scale and shift, without subtracting the mean, as used by MLP speculators.

    Args:
        width: size of the last dimension.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return normalised states `[..., D]`."""
        return _normed(states) * self.weight + self.bias


class MLPSpeculator(nn.Module):
    """A chain of small heads, each conditioned on the previous token (Wertheimer et al., arXiv 2404.19124).

    With `s` the target's final state, head i computes `s = GELU(ln_i(proj_i(s) + c emb_i(token)))` and logits
    `head_i(s)`. Parameter names are those of the published checkpoints, without their prefix.

    Args:
        layout: sizes.
    """

    def __init__(self, layout: MLPSpeculatorLayout) -> None:
        super().__init__()
        self.layout = layout
        width, vocab_size = layout.width, layout.vocab_size
        self.emb = self._modules_of(lambda i: nn.Embedding(vocab_size, width))
        self.proj = self._modules_of(
            lambda i: nn.Linear(width if i else layout.emb_dim, width, bias=False), first=1
        )
        self.ln = self._modules_of(lambda i: ScaleNorm(width))
        self.head = self._modules_of(lambda i: nn.Linear(width, vocab_size, bias=False))
        # The state's share of a head's input shrinks to sqrt(1/2) over all heads; the following norm restores the scale.
        state_weight = 0.5 ** (0.5 / layout.n_predict)
        self.token_weight = math.sqrt((1 - state_weight**2) * width / 2) / state_weight
        """c, the weight of a token's embedding relative to the state."""
        self.reset_parameters()

    def _modules_of(self, make: Callable[[int], nn.Module], *, first: int = 0) -> nn.ModuleList:
        """Return one module per head; tied heads share one module from `first` on."""
        modules: list[nn.Module] = []
        for index in range(self.layout.n_predict):
            is_shared = self.layout.tie_weights and index > first
            modules.append(modules[first] if is_shared else make(index))
        return nn.ModuleList(modules)

    def reset_parameters(self) -> None:
        """Reinitialise the weights for training."""
        for name, parameter in self.named_parameters():
            if not name.startswith("ln."):
                nn.init.normal_(parameter, std=self.layout.width**-0.5)

    @property
    def num_heads(self) -> int:
        """The most tokens that can be drafted one after another."""
        return self.layout.n_predict

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return the input of head 0 for the target's states `[..., H]` of any floating dtype."""
        states = states.to(next(self.parameters()).dtype)
        return _normed(states) / math.sqrt(2) if self.layout.scale_input else states

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one head.

        Args:
            index: index of the head.
            states: `[..., H]` from `begin` for head 0, else `[..., D]` from the previous head.
            token_ids: `[...]` int64 tokens before the predicted ones.

        Returns:
            states `[..., D]` for the next head, and logits `[..., V]`.
        """
        mixed = torch.add(self.proj[index](states), self.emb[index](token_ids), alpha=self.token_weight)
        states = _gelu(self.ln[index](mixed))
        return states, self.head[index](states)

    def forward(self, states: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Run all heads along known tokens, for training.

        Args:
            states: `[..., H]` the target's final states.
            token_ids: `[..., n]` int64 the tokens after each state: column 0 is the token that the state chose, column i the
                one that head i - 1 should predict. n is the number of heads.

        Returns:
            logits `[..., n, V]`; those at i predict the token after column i.
        """
        states = self.begin(states)
        logits = []
        for index in range(self.num_heads):
            states, out = self.step(index, states, token_ids[..., index])
            logits.append(out)
        return torch.stack(logits, -2)


def _normed(states: torch.Tensor) -> torch.Tensor:
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + 1e-6)


def _gelu(states: torch.Tensor) -> torch.Tensor:
    if states.device.type == "cpu" and states.numel() <= _MAX_PLAIN_SIZE:
        # On the CPU `F.gelu` is oneDNN's, which spreads even one row over all threads and waits for them.
        share: torch.Tensor = torch.special.ndtr(states)
        return states * share
    return F.gelu(states)
