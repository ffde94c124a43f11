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


class Scaled(nn.Module):
    """What a map is while it is learnt where its inputs differ in size: a map of inputs of size one, times what makes them so.

    Args:
        size: D, inputs of the map.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(size))

    def forward(self, own: Tensor) -> Tensor:
        """Return the map `[H, D]` of inputs as they are, given that of inputs of size one."""
        scale = self.scale
        assert isinstance(scale, Tensor)
        return own * scale


def rescale(module: nn.Module) -> None:
    """Have the weight of a linear map be learnt so; the scale is one until it is set."""
    size = weight_of(module).shape[1]
    parametrize.register_parametrization(module, "weight", Scaled(size), unsafe=True)


@torch.no_grad()
def set_scaled(module: nn.Module, own: Tensor, scale: Tensor) -> None:
    """Set a weight that is learnt so: the map `[H, D]` of inputs of size one, and the scale `[D]` of the inputs."""
    module.get_parameter("parametrizations.weight.original").copy_(own)
    module.get_buffer("parametrizations.weight.0.scale").copy_(scale)


def merge(module: nn.Module) -> None:
    """Turn all factored weights inside a module into plain ones of the same values."""
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
