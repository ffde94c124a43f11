"""The heads of an MLP speculator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout

_MAX_PLAIN_SIZE = 8192
"""Up to so many elements the activation is made by operations that stay on one thread."""


class ScaleNorm(nn.Module):
    """Root-mean-square norm with scale and shift, as MLP speculators have it; keeps the mean.

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
    """A chain of small heads, each told the token before the one it guesses (Wertheimer et al., arXiv 2404.19124).

    With `s` the target's final state, head i makes `s = GELU(ln_i(proj_i(s) + c emb_i(token)))` and guesses from
    `head_i(s)`. Names of parameters are those of the published checkpoints, without their prefix.

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
        # The state's share of a head's input shrinks to sqrt(1/2) over all heads; the norm behind takes care of the scale.
        state_weight = 0.5 ** (0.5 / layout.n_predict)
        self.token_weight = math.sqrt((1 - state_weight**2) * width / 2) / state_weight
        """c, the weight of a token's embedding beside the state."""
        self.reset_parameters()

    def _modules_of(self, make: Callable[[int], nn.Module], *, first: int = 0) -> nn.ModuleList:
        """Return one module per head; of tied heads those from `first` on are the same one."""
        modules: list[nn.Module] = []
        for index in range(self.layout.n_predict):
            is_shared = self.layout.tie_weights and index > first
            modules.append(modules[first] if is_shared else make(index))
        return nn.ModuleList(modules)

    def reset_parameters(self) -> None:
        """Draw weights anew, as training begins with them."""
        for name, parameter in self.named_parameters():
            if not name.startswith("ln."):
                nn.init.normal_(parameter, std=self.layout.width**-0.5)

    @property
    def num_heads(self) -> int:
        """How many tokens can be guessed one after another."""
        return self.layout.n_predict

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return what head 0 takes, of the target's states `[..., H]`; these come in any floating type."""
        states = states.to(next(self.parameters()).dtype)
        return _normed(states) / math.sqrt(2) if self.layout.scale_input else states

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one head.

        Args:
            index: which.
            states: `[..., H]` of `begin` for head 0, else `[..., D]` of the head before.
            token_ids: `[...]` int64 the token before the one that is guessed.

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
            token_ids: `[..., n]` int64 the tokens after each: column 0 the one that the state chose, column i the one that head
                i - 1 should guess. n is the number of heads.

        Returns:
            logits `[..., n, V]`; those at i should name the token after column i.
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
        # On the host `F.gelu` is oneDNN's, which spreads even one row over all threads and waits for them.
        share: torch.Tensor = torch.special.ndtr(states)
        return states * share
    return F.gelu(states)
