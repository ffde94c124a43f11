"""Linear modules run by a backend: those of a proposer's small networks, and of models whose own forward runs."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

import torch
from torch import nn

from specdec.backends import first_offer, grouped_warnings
from specdec.interfaces import Declined
from specdec_runtime.backends.comparison import LEAST, distance
from specdec_runtime.backends.models import of_models
from specdec_runtime.interfaces.blocks import CHUNK, TILE, BlockLinear

_ROWS = 3
"""Rows that a product is tried with."""
_BLOCK_ROWS = 40
"""Rows of weights in blocks of which the products are compared."""
_SPED_UP: WeakSet[nn.Module] = WeakSet()
"""Modules with a backend's forward."""


@grouped_warnings()
def speed_up_linears(module: nn.Module) -> None:
    """Make the `nn.Linear` modules of a frozen module use a backend's products.

    Results are the same up to summation order. Modules of other classes, subclasses included, or with hooks are not changed.
    """
    speed_up_blocks(module)
    for linear in module.modules():
        if type(linear) is nn.Linear and not (linear._forward_hooks or linear._forward_pre_hooks):
            forward = fast_linear(linear)
            if forward is not None:
                linear.forward = forward  # type: ignore[method-assign, assignment]
                _SPED_UP.add(linear)


@grouped_warnings()
def speed_up_blocks(module: nn.Module) -> None:
    """Make the modules with weights in blocks use a backend's products; torch would widen all of them in each pass."""
    for linear in module.modules():
        if isinstance(linear, BlockLinear) and "forward" not in vars(linear):
            forward = fast_linear(linear)
            if forward is not None:
                linear.forward = forward  # type: ignore[method-assign, assignment]
                _SPED_UP.add(linear)


def slow_down(module: nn.Module) -> None:
    """Undo `speed_up_linears` and `speed_up_blocks`: products may hold what was made of a weight's numbers."""
    for linear in module.modules():
        if linear in _SPED_UP:
            _SPED_UP.discard(linear)
            vars(linear).pop("forward", None)


def reads_blocks(device: torch.device) -> bool:
    """Return whether a backend multiplies with weights in blocks as they are."""
    if device.type != "cpu":
        return False
    module = BlockLinear("Q8_0", TILE, CHUNK)
    nn.init.zeros_(module.weight)
    return fast_linear(module) is not None


def fast_linear(module: nn.Linear | BlockLinear) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return a backend's forward `[..., in] -> [..., out]` of a frozen linear module; None if no backend has one."""
    answer = first_offer(
        "the product",
        lambda backend: of_models(backend).linear(module),
        lambda product: _disagreement(product, module),
    )
    return None if isinstance(answer, Declined) else answer


@torch.inference_mode()
def _disagreement(
    forward: Callable[[torch.Tensor], torch.Tensor], module: nn.Linear | BlockLinear
) -> str | None:
    """Return how a product differs from the module's own on a few rows; None if it does not."""
    generator = torch.Generator().manual_seed(0)
    x, dtype = torch.randn(_ROWS, module.in_features, generator=generator), module.weight.dtype
    if isinstance(module, BlockLinear):
        dtype = torch.float32 if module.input_bits == 24 else torch.bfloat16
        x = x.to(dtype)
        expected = module.first_rows(_BLOCK_ROWS)(x)
    else:
        x = x.to(module.weight.device, dtype)
        expected = module(x)
    got = forward(x)[:, : expected.shape[1]]
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"it returns {got.dtype} {tuple(got.shape)}, torch {expected.dtype} {tuple(expected.shape)}"
    off = distance(got, expected)
    return None if off <= LEAST[dtype] else f"it differs from torch's by {off:.1e}"


def has_native_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices in hardware."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
