"""A linear map that chooses its kernel by the number of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import psutil
import torch
from torch import nn
from torch.nn import functional as F

from specdec.runner.host.lanes import FEATURES, HAS_BFLOAT16_PAIRS
from specdec.runner.host.product import MAX_PRODUCT_ROWS, Floats, compact, multiply
from specdec.runner.host.threads import is_available

_MAX_NATIVE_ROWS = 8
"""If the processor multiplies bfloat16 natively but compiled code cannot, oneDNN wins from fewer rows on."""
_MAX_ROWS_BESIDE_TILES = 32
"""If the processor has bfloat16 matrix tiles (AMX), they win above about this many rows; estimated, not measured."""

_HOST_DTYPES = (torch.float32, torch.bfloat16)


def join(linears: list[nn.Linear]) -> torch.Tensor:
    """Stack the weights `[out, in]` of linears with the same input; the modules then share the stacked memory."""
    weight = _joined(linears)
    if weight is not None:
        return weight
    with torch.inference_mode(False):  # the caller may later need gradients
        weight = torch.cat([linear.weight.detach() for linear in linears])
        start = 0
        for linear in linears:
            end = start + linear.out_features
            linear.weight.data = weight[start:end]
            start = end
    return weight


def _joined(linears: list[nn.Linear]) -> torch.Tensor | None:
    """Return the stacked weight if the linears already share one, as in a model that was joined before, else None."""
    first = linears[0].weight.detach()
    if len(linears) == 1:
        return first
    end = first.data_ptr()
    for linear in linears:
        weight = linear.weight
        if weight.data_ptr() != end or not weight.is_contiguous():
            return None
        if weight.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None
        end += weight.numel() * weight.element_size()
    return first.as_strided((sum(linear.out_features for linear in linears), first.shape[1]), first.stride())


class FastLinear:
    """`x @ W.T + b` for `x [T, in]`.

    On the host, inputs of up to `max_product_rows` rows use compiled loops that read each weight once. Longer ones use
    oneDNN's blocked layout if `pack` was called, else torch. On a device, everything uses torch.

    Args:
        linears: modules with the same input; the outputs are joined in their order.
        is_compact: whether compiled loops may be used.
    """

    def __init__(self, linears: list[nn.Linear], *, is_compact: bool = True) -> None:
        self.weight = join(linears)
        biases = [linear.bias for linear in linears]
        self.bias = torch.cat([b.detach() for b in biases]) if all(b is not None for b in biases) else None
        self.compact = compact(self.weight) if is_compact and is_available() else None
        is_half = self.weight.dtype == torch.bfloat16
        self.is_rounded = is_half and HAS_BFLOAT16_PAIRS
        self.max_product_rows = _max_half_rows() if is_half else MAX_PRODUCT_ROWS
        self._num_out = self.weight.shape[0]
        self.host_bias = None if self.bias is None or self.compact is None else self.bias.float().numpy()
        self._blocked: torch.Tensor | None = None
        if self.compact is not None:  # compiled now, not by the first request
            one = np.zeros((1, self.compact.shape[1]), np.float32)
            multiply(one, self.compact[:1], np.empty((1, 1), np.float32), self.is_rounded)

    def pack(self) -> None:
        """Make a second copy of the weights, in float32 and oneDNN's blocked layout, for passes of many rows."""
        self._blocked = torch.ops.mkldnn._reorder_linear_weight(
            self.weight.float().contiguous(), MAX_PRODUCT_ROWS
        )
        self._blocked_bias = None if self.bias is None else self.bias.float()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        if self.compact is not None and x.shape[0] <= self.max_product_rows:
            return self._product(x)
        if self._blocked is not None:
            out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x.float(), self._blocked, self._blocked_bias, "none", [], ""
            )
            return out.to(x.dtype)
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)

    def host(self, x: Floats) -> Floats:
        """Return `[T, out]` for a float32 host array `x [T, in]`."""
        if self.compact is None or x.shape[0] > self.max_product_rows:
            return self(torch.from_numpy(x)).float().numpy()
        out = np.empty((x.shape[0], self._num_out), np.float32)
        multiply(x, self.compact, out, self.is_rounded)
        if self.host_bias is not None:
            out += self.host_bias
        return out

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.host(x.float().contiguous().numpy())).to(x.dtype)


def speed_up_linears(module: nn.Module) -> None:
    """Make the `nn.Linear` modules of a frozen host module use compiled products for inputs of a few rows.

    Results are the same up to summation order. Modules of other classes, subclasses included, are not changed.
    """
    if not is_available():
        return
    for linear in module.modules():
        if type(linear) is not nn.Linear:
            continue
        if linear.weight.device.type == "cpu" and linear.weight.dtype in _HOST_DTYPES:
            linear.forward = _flat(FastLinear([linear]))  # type: ignore[method-assign, assignment]


def _flat(linear: FastLinear) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Return `[..., out]` for `x [..., in]`."""
        if x.dim() == 2:
            return linear(x)
        out = linear(x.reshape(-1, x.shape[-1]))
        return out.reshape(*x.shape[:-1], out.shape[-1])

    return forward


def can_pack(num_weight_bytes: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a blocked float32 copy of the weights pays off here and fits in a quarter of free memory."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if (dtype == torch.bfloat16 and has_native_bfloat16()) or dtype not in (torch.float32, torch.bfloat16):
        return False
    copies = torch.float32.itemsize // dtype.itemsize
    return num_weight_bytes * copies < psutil.virtual_memory().available // 4


def _max_half_rows() -> int:
    """Return the maximum number of rows for which compiled products of bfloat16 weights are the fastest."""
    if FEATURES.get("amx-bf16"):
        return _MAX_ROWS_BESIDE_TILES
    return _MAX_NATIVE_ROWS if has_native_bfloat16() and not HAS_BFLOAT16_PAIRS else MAX_PRODUCT_ROWS


def has_native_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices in hardware."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
