"""Linear modules run by a backend: those of a proposer's small networks, and of models whose own forward runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from types import MethodType
from typing import Any
from weakref import WeakSet, ref

import torch
from torch import nn

from specdec.backends import first_offer, grouped_warnings
from specdec.interfaces import Declined
from specdec_runtime.backends.comparison import LEAST, distance
from specdec_runtime.backends.models import of_models
from specdec_runtime.interfaces.blocks import CHUNK, TILE, BlockLinear
from specdec_runtime.interfaces.quantized import QuantizedLinear

logger = logging.getLogger("specdec")

Product = Callable[[torch.Tensor], torch.Tensor]

_ROWS = 3
"""Rows that a product is tried with."""
_BLOCK_ROWS, _QUANTIZED_ROWS = 40, 1024
"""Rows of weights in blocks and of quantized ones of which the products are compared."""
_TIMED_ROWS = (1, 4, 16, 64)
"""Numbers of rows that a product with few bits is timed with."""
_TIMES = 7
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


@torch.inference_mode()
@grouped_warnings()
def speed_up_quantized(module: nn.Module, dtype: torch.dtype) -> None:
    """Make the modules with weights of 8 or 4 bits use a backend's products where these are faster than widening all weights.

    Both are timed once for each shape.

    Args:
        module: the module.
        dtype: that it runs in.
    """
    most_rows: dict[tuple[object, ...], int] = {}
    found = [linear for linear in module.modules() if isinstance(linear, QuantizedLinear)]
    num_read = 0
    for linear in found if dtype == torch.bfloat16 else ():
        shape = linear.packed.shape, linear.scales.shape, linear.packed.device
        product = fast_linear(linear) if most_rows.get(shape) != 0 else None
        if product is None:
            continue
        if shape not in most_rows:
            most_rows[shape] = _faster_up_to(product, linear)
        if most_rows[shape]:
            linear.forward = QuantizedForward(linear, product, most_rows[shape])  # type: ignore[method-assign]
            _SPED_UP.add(linear)
            num_read += 1
    if found:
        logger.info(
            "%s: of %d maps with weights of 8 or 4 bits %d are multiplied as they are stored, which was faster than widening "
            "them, for up to %d rows", type(module).__name__, len(found), num_read, max(most_rows.values(), default=0),
        )  # fmt: skip


class QuantizedForward:
    """The forward of a module with weights of few bits: a product that reads these for few rows in bfloat16, else its own.

    Args:
        module: the module. A copy of it has its own forward.
        product: `[..., in] -> [..., out]`.
        most_rows: for how many rows the product is faster.
    """

    def __init__(self, module: QuantizedLinear, product: Product, most_rows: int) -> None:
        self._module = ref(module)  # which has this as its forward
        self._product, self._most_rows = product, most_rows

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[..., out]` for `x [..., in]`."""
        if x.dtype == torch.bfloat16 and x.numel() <= self._most_rows * x.shape[-1]:
            return self._product(x)
        module = self._module()
        assert module is not None
        return QuantizedLinear.forward(module, x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Product:
        """Return the own forward of the copied module."""
        return MethodType(QuantizedLinear.forward, memo[id(self._module())])


def _faster_up_to(product: Product, module: QuantizedLinear) -> int:
    """Return the most rows, of those that are timed, up to which a product is faster than widening; 0 for none."""
    most = 0
    for num_rows in _TIMED_ROWS:
        x = torch.zeros(num_rows, module.in_features, dtype=torch.bfloat16, device=module.packed.device)
        if _seconds(product, x) >= _seconds(module, x):
            break
        most = num_rows
    return most


def _seconds(product: Product, x: torch.Tensor) -> float:
    """Return the shortest time of a call, whose result the host reads."""
    times = []
    for _ in range(1 + _TIMES):
        started = perf_counter()
        product(x)[:1, :1].cpu()
        times.append(perf_counter() - started)
    return min(times[1:])


def slow_down(module: nn.Module) -> None:
    """Undo what makes products faster: these may hold what was made of a weight's numbers."""
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


def fast_linear(module: nn.Linear | BlockLinear | QuantizedLinear) -> Product | None:
    """Return a backend's forward `[..., in] -> [..., out]` of a frozen linear module; None if no backend has one."""
    answer = first_offer(
        "the product",
        lambda backend: of_models(backend).linear(module),
        lambda product: _disagreement(product, module),
    )
    return None if isinstance(answer, Declined) else answer


@torch.inference_mode()
def _disagreement(forward: Product, module: nn.Linear | BlockLinear | QuantizedLinear) -> str | None:
    """Return how a product differs from the module's own on a few rows; None if it does not."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, module.in_features, generator=generator)
    if isinstance(module, QuantizedLinear):
        dtype, step = torch.bfloat16, -(-module.out_features // _QUANTIZED_ROWS)
        x = x.to(module.packed.device, dtype)
        bias = None if module.bias is None else module.bias[::step]
        some = QuantizedLinear(module.packed[::step], module.scales[::step], bias)
        expected, got = some(x.float()).to(dtype), forward(x)[:, ::step]
    elif isinstance(module, BlockLinear):
        dtype = torch.float32 if module.input_bits == 24 else torch.bfloat16
        x = x.to(dtype)
        expected = module.first_rows(_BLOCK_ROWS)(x)
        got = forward(x)[:, : expected.shape[1]]
    else:
        dtype = module.weight.dtype
        x = x.to(module.weight.device, dtype)
        expected, got = module(x), forward(x)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"it returns {got.dtype} {tuple(got.shape)}, torch {expected.dtype} {tuple(expected.shape)}"
    off = distance(got, expected)
    return None if off <= LEAST[dtype] else f"it differs from torch's by {off:.1e}"


def has_native_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices in hardware."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
