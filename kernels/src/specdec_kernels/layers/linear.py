"""Linear maps with the same input, joined into one product."""

from __future__ import annotations

import torch
from torch import nn

from specdec_runtime.backends import fast_linear


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
            if linear.weight.is_inference():  # which would lose its version counter with its memory
                linear.weight = nn.Parameter(weight[start:end], requires_grad=False)
            else:
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


class JoinedLinear:
    """`x @ W.T + b` for `x [T, in]`, by a backend's product if one takes the weight.

    Args:
        linears: modules with the same input; the outputs are joined in their order.
    """

    def __init__(self, linears: list[nn.Linear]) -> None:
        self.weight = join(linears)
        self.num_out = self.weight.shape[0]
        biases = [linear.bias for linear in linears]
        self.bias = torch.cat([b.detach() for b in biases]) if all(b is not None for b in biases) else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        return nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


class FastLinear(JoinedLinear):
    """The same by a backend's product, if one takes the weight.

    Args:
        linears: see `JoinedLinear`.
    """

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__(linears)
        size, width = self.weight.shape
        module = nn.Linear(width, size, bias=self.bias is not None, device="meta")
        module.weight = nn.Parameter(self.weight, requires_grad=False)
        if self.bias is not None:
            module.bias = nn.Parameter(self.bias, requires_grad=False)
        self._product = fast_linear(module) or super().__call__

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        return self._product(x)
