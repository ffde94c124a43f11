"""A linear map that keeps its weights in the layout the processor multiplies fastest."""

from __future__ import annotations

import psutil
import torch
from torch import nn
from torch.nn import functional as F


def join(linears: list[nn.Linear]) -> torch.Tensor:
    """Stack the weights `[out, in]` of linears with one input, and let the modules share the stacked memory.

    On the host in float32 the stack is stored transposed, which one-row products read about twice as fast.
    """
    weight = torch.cat([linear.weight.detach() for linear in linears])
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        weight = weight.t().contiguous().t()
    start = 0
    for linear in linears:
        end = start + linear.out_features
        linear.weight = nn.Parameter(weight[start:end], requires_grad=False)
        start = end
    return weight


class FastLinear:
    """`x @ W.T + b` for `x [T, in]`, choosing the kernel by T.

    Args:
        linears: modules with the same input; the outputs are joined in their order.
        is_packed: whether a second copy in oneDNN's blocked layout may be kept for passes of several rows.
    """

    def __init__(self, linears: list[nn.Linear], *, is_packed: bool) -> None:
        self.weight = join(linears)
        self.transposed = self.weight.t()
        biases = [linear.bias for linear in linears]
        self.bias = torch.cat([b.detach() for b in biases]) if all(b is not None for b in biases) else None
        self._is_host_float32 = self.weight.device.type == "cpu" and self.weight.dtype == torch.float32
        self._blocked: torch.Tensor | None = None
        self._min_blocked_rows = 2
        if is_packed:
            self._blocked = torch.ops.mkldnn._reorder_linear_weight(self.weight.float().contiguous(), 8)
            self._blocked_bias = None if self.bias is None else self.bias.float()
            self._is_upcast = self.weight.dtype != torch.float32
            # One-row products in 16 bits read half the bytes; from three rows on, float32 arithmetic is faster here.
            self._min_blocked_rows = 3 if self._is_upcast else 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        if self._blocked is not None and x.shape[0] >= self._min_blocked_rows:
            return self._blocked_product(x)
        if self._is_host_float32:
            if self.bias is None:
                return torch.mm(x, self.transposed)
            return torch.addmm(self.bias, x, self.transposed)
        return F.linear(x, self.weight, self.bias)

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return `residual + x @ W.T + b`."""
        if self._is_host_float32 and self.bias is None and (self._blocked is None or x.shape[0] == 1):
            return torch.addmm(residual, x, self.transposed)
        return residual + self(x)

    def _blocked_product(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.float() if self._is_upcast else x
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._blocked, self._blocked_bias, "none", [], "")
        return out.to(x.dtype) if self._is_upcast else out


def can_pack(num_weight_bytes: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a second, blocked copy of the weights pays on this machine and fits in a quarter of free memory."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    has_native = dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if has_native or dtype not in (torch.float32, torch.bfloat16):
        return False


    copies = torch.float32.itemsize // dtype.itemsize
    return num_weight_bytes * copies < psutil.virtual_memory().available // 4
