"""Parametrizations for training: maps of the target's vocabulary tables, and maps of whitened inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from specdec_train.heads.weights import weight_of


class Factored(nn.Module):
    """Parametrization of a vocabulary table: a fixed table times a trained map, plus a trained row per token.

    Every token of a text trains the map.

    Args:
        base: `[V, H]` the fixed table.
        through: `[H, D]` initial value of the map.
        scale: factor on the map, so that its entries have the size that optimizers expect.
    """

    def __init__(self, base: Tensor, through: Tensor, scale: float) -> None:
        super().__init__()
        self.register_buffer("base", base.detach().clone(), persistent=False)
        self.through = nn.Parameter(through.clone())
        self._scale = scale

    def forward(self, own: Tensor) -> Tensor:
        """Return the table `[V, D]`, given the trained row of each token."""
        base = self.base
        assert isinstance(base, Tensor)
        return own + base @ (self._scale * self.through)


def factor(module: nn.Module, base: Tensor, through: Tensor, scale: float) -> None:
    """Parametrize a module's weight by `Factored`, with zero rows at first; does nothing the second time."""
    if parametrize.is_parametrized(module):
        return
    with torch.no_grad():
        weight_of(module).zero_()
    parametrize.register_parametrization(module, "weight", Factored(base, through, scale), unsafe=True)


_MOST_WHITENED = 6144
"""Maximum number of inputs to whiten: the cost grows with the cube of their number."""


class Whitened(nn.Module):
    """Parametrization of a linear map with correlated inputs: a trained map times the inputs' whitening.

    States of several layers are strongly correlated, and a step size that suits their common part is too
    large for the rest.

    Args:
        size: D, inputs of the map; more than `_MOST_WHITENED` inputs are only scaled, not whitened.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("whitening", torch.eye(size) if size <= _MOST_WHITENED else None)

    def forward(self, own: Tensor) -> Tensor:
        """Return the map `[H, D]` of the original inputs, given the map of whitened inputs."""
        scale, whitening = self.scale, self.whitening
        assert isinstance(scale, Tensor)
        return (own @ whitening if isinstance(whitening, Tensor) else own) * scale


def whiten(module: nn.Module) -> None:
    """Parametrize the weight of a linear map by `Whitened`; nothing changes until `set_whitened`."""
    size = weight_of(module).shape[1]
    parametrize.register_parametrization(module, "weight", Whitened(size), unsafe=True)


@torch.no_grad()
def set_whitened(module: nn.Module, weight: Tensor, scale: Tensor, moments: Tensor) -> None:
    """Set a weight that is parametrized by `Whitened`.

    Args:
        module: a module passed to `whiten` before.
        weight: `[H, D]` map of inputs times `scale`.
        scale: `[D]` scales inputs to size one.
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
    """Replace all parametrized weights inside a module by plain ones of the same values."""
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
