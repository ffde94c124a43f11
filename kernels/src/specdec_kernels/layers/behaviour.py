"""Tells small modules by what they return, since their names and attributes do not."""

from __future__ import annotations

import sys

import torch
from torch import nn

from specdec_kernels.layers.parts import Activation, Norm

_MODULES = {Activation.SILU: nn.SiLU(), Activation.GELU_TANH: nn.GELU("tanh")}
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6


@torch.no_grad()
def activation_of(module: nn.Module | None) -> Activation | None:
    """Return which activation a module is, None if it is another."""
    if module is None:
        return None
    x = torch.linspace(-6.0, 6.0, 49)
    got = module(x)
    return next((kind for kind, known in _MODULES.items() if _is_near(got, known(x))), None)


@torch.no_grad()
def norm_of(module: nn.Module | None, size: int) -> Norm | None:
    """Return the norm over `size` numbers that a module is, None if it is none that `Norm` describes.

    Its factor is the weight, or the weight + 1, or 1 if there is no weight.
    """
    if module is None:
        return None
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    parameters = dict(module.named_parameters())
    if set(parameters) - {"weight"} or not isinstance(epsilon, float):
        return None
    weight = parameters["weight"].detach() if parameters else torch.ones(size)
    if weight.shape != (size,) or weight.device.type == "meta":
        return None
    x = torch.linspace(-1.0, 2.0, size, device=weight.device)
    got = module(x)
    for is_centred in (False, True):
        entry = x - x.mean() if is_centred else x
        scaled = entry * torch.rsqrt(entry.square().mean() + epsilon)
        for factor in (weight, weight.float() + 1.0):
            if _is_near(got, scaled * factor.float()):
                return Norm(factor, epsilon, is_centred)
    return None


def is_interleaved(module: nn.Module) -> bool | None:
    """Return whether the attention of this module rotates neighbours; None if it rotates by a rule that is not known.

    What decides is the function `rotate_half` beside the module's class.
    """
    rotate = getattr(sys.modules[type(module).__module__], "rotate_half", None)
    if rotate is None:
        return False
    turned = rotate(torch.arange(4.0)).tolist()
    return {(-2.0, -3.0, 0.0, 1.0): False, (-1.0, 0.0, -3.0, 2.0): True}.get(tuple(turned))


def _is_near(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return got.shape == expected.shape and torch.allclose(
        got.float(), expected, rtol=_RELATIVE, atol=_ABSOLUTE
    )
