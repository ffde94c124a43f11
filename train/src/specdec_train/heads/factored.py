"""Tables of a vocabulary learnt as a map of the target's, which every token of a text teaches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from specdec_train.heads.weights import weight_of


class Factored(nn.Module):
    """What a table is while it is learnt: a fixed table through a learnt map, plus what is learnt for each token alone.

    Args:
        base: `[V, H]` the fixed table.
        through: `[H, D]` the map to begin with.
        scale: factor on the map, so that its own entries may be of the size that optimizers expect.
    """

    def __init__(self, base: Tensor, through: Tensor, scale: float) -> None:
        super().__init__()
        self.register_buffer("base", base.detach().clone(), persistent=False)
        self.through = nn.Parameter(through.clone())
        self._scale = scale

    def forward(self, own: Tensor) -> Tensor:
        """Return the table `[V, D]`, given each token's own part."""
        base = self.base
        assert isinstance(base, Tensor)
        return own + base @ (self._scale * self.through)


def factor(module: nn.Module, base: Tensor, through: Tensor, scale: float) -> None:
    """Have the weight of a module be learnt so, its own part zero to begin with; a module is factored once."""
    if parametrize.is_parametrized(module):
        return
    with torch.no_grad():
        weight_of(module).zero_()
    parametrize.register_parametrization(module, "weight", Factored(base, through, scale), unsafe=True)


_MOST_WHITENED = 6144
"""Inputs up to which they are: finding how takes a time that grows with the cube of their number."""


class Whitened(nn.Module):
    """A map being learnt whose inputs resemble each other: a map of inputs made unlike, times what makes them so.

    States of several layers have much in common, and a step that is right for what they share is too large for the rest.

    Args:
        size: D, inputs of the map; more than `_MOST_WHITENED` are made of one size only.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("whitening", torch.eye(size) if size <= _MOST_WHITENED else None)

    def forward(self, own: Tensor) -> Tensor:
        """Return the map `[H, D]` of inputs as they are, given that of inputs whose second moments are the identity."""
        scale, whitening = self.scale, self.whitening
        assert isinstance(scale, Tensor)
        return (own @ whitening if isinstance(whitening, Tensor) else own) * scale


def whiten(module: nn.Module) -> None:
    """Have the weight of a linear map be learnt so; nothing is changed until `set_whitened`."""
    size = weight_of(module).shape[1]
    parametrize.register_parametrization(module, "weight", Whitened(size), unsafe=True)


@torch.no_grad()
def set_whitened(module: nn.Module, weight: Tensor, scale: Tensor, moments: Tensor) -> None:
    """Set a weight that is learnt so.

    Args:
        module: given to `whiten` before.
        weight: `[H, D]` map of inputs times `scale`.
        scale: `[D]` that makes inputs of size one.
        moments: `[D, D]` second moments of inputs times `scale`, positive definite.
    """
    own, whitening = weight.double(), module.get_submodule("parametrizations.weight.0").whitening
    if isinstance(whitening, Tensor):
        values, vectors = torch.linalg.eigh(moments.double())
        roots = values.clamp_min(values[-1] * 1e-9).sqrt()
        own = (own @ vectors * roots) @ vectors.T
        whitening.copy_((vectors / roots) @ vectors.T)
    module.get_parameter("parametrizations.weight.original").copy_(own)
    module.get_buffer("parametrizations.weight.0.scale").copy_(scale)


def merge(module: nn.Module) -> None:
    """Turn all factored weights inside a module into plain ones of the same values."""
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
