"""Muon that orthogonalises matrices of the same shape together.

`torch.optim.Muon` runs its Newton-Schulz iteration in bfloat16, one matrix at a time. On a CPU
without bfloat16 units that took three times as long as the forward and backward passes of the zoo
model, so this version runs in float32 there. The update rule is the same
(https://kellerjordan.github.io/posts/muon/).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor

from specdec_train.precision import matmul_dtype

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Push the singular values of each matrix towards one.

    Args:
        matrices: `[N, rows, columns]`.
        steps: Newton-Schulz iterations.

    Returns:
        matrices of the same shape with singular values of about 0.7 to 1.2.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.mT.contiguous() if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum with an orthogonalised update, for the two-dimensional weights inside the blocks.

    Args:
        params: matrices only.
        lr: step size; an update has spectral norm of about `lr * sqrt(max(1, rows / columns))`.
        weight_decay: decoupled decay, multiplied by `lr`.
        momentum: Nesterov momentum.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, *, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(
                        f"Muon takes matrices only, got a parameter of shape {tuple(param.shape)}"
                    )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch overloads it
        """Take one step with the current gradients; `closure` is called first if given."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for param in cast(list[Tensor], group["params"]):
                if param.grad is not None:
                    by_shape[param.shape].append(param)
            for params in by_shape.values():
                self._step_together(params, group)
        return loss

    def _step_together(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Update all given matrices, which share one shape."""
        updates: list[Tensor] = []
        for param in params:
            grad = cast(Tensor, param.grad)
            state = self.state[param]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(param)
            buffer: Tensor = state["momentum_buffer"]
            buffer.lerp_(grad, 1 - group["momentum"])
            updates.append(grad.lerp(buffer, group["momentum"]))
        rows, columns = params[0].shape
        scale = -group["lr"] * max(1.0, rows / columns) ** 0.5
        directions = orthogonalize(torch.stack(updates).to(matmul_dtype()))
        for param, update in zip(params, directions, strict=True):
            param.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=scale)
