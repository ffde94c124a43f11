"""Checks that a faster form of a model computes what the model does in wider arithmetic, up to rounding in the run's dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from specdec_runtime.interfaces.blocks import BlockEmbedding

FACTOR = 2.0
"""How many times the error of the model's own forward a faster form's error may be."""

LEAST = {torch.float32: 1e-5, torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative distance that is always allowed. Small models round so little that summation order dominates."""
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
"""The reference dtype of each dtype; float64 is its own reference."""

_EXPERTS, _GROUPED = "_experts_implementation", "grouped_mm"
"""How models of `transformers` run their experts, in their configurations."""


@dataclass(frozen=True)
class Agreement:
    """Relative distances (of norms) from a reference in wider arithmetic over the same weights."""

    error: float
    """Error of the faster form."""
    own_error: float
    """Error of the model's own forward in the run's dtype, that is, its rounding."""
    allowed: float
    """Upper bound on `error`."""

    @property
    def holds(self) -> bool:
        """Whether the faster form may replace the model; false for NaN."""
        return self.error <= self.allowed

    def __str__(self) -> str:
        """The distances, for messages."""
        return (
            f"{self.error:.1e} from the reference in wider arithmetic, where the model's own forward is {self.own_error:.1e} "
            f"and {self.allowed:.1e} is allowed"
        )


def agreement(
    form: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor],
    dtype: torch.dtype,
) -> Agreement:
    """Compare a faster form and the model's own forward with the reference; the worst output counts.

    Args:
        form: outputs of the faster form.
        own: the same outputs of the model's own forward.
        reference: the same in wider arithmetic.
        dtype: the run's dtype.
    """
    worst: Agreement | None = None
    for ours, theirs, exact in zip(form, own, reference, strict=True):
        own_error = distance(theirs, exact)
        allowed = max(FACTOR * own_error, LEAST[dtype])
        found = Agreement(distance(ours, exact), own_error, allowed)
        if worst is None or not found.error / found.allowed <= worst.error / worst.allowed:
            worst = found
    assert worst is not None
    return worst


def distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of the difference divided by the norm of `expected`, in float64."""
    wide = expected.double()
    return float((got.double() - wide).norm() / wide.norm().clamp_min(1e-30))


@contextmanager
def in_wider_arithmetic(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Run `module` in `dtype` within the context.

    Each submodule's weights are converted only while that submodule runs, so there is never a second copy of the model.

    Args:
        module: a module with floating-point parameters, called from one thread.
        dtype: see `WIDER`.
    """
    held: dict[nn.Module, dict[str, nn.Parameter | None]] = {}
    dtypes = {part: part.dtype for part in module.modules() if isinstance(part, BlockEmbedding)}

    def widen(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held[part] = dict(part._parameters)
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                part._parameters[name] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        return tree_map(cast, args), tree_map(cast, kwargs)

    def restore(part: nn.Module, *_: object) -> None:
        part._parameters.update(held.pop(part))

    def cast(value: Any) -> Any:
        is_number = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_number else value

    # Grouped products of experts, which recorded passes need, are not made for float64.
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    grouped = [each for each in configs.values() if getattr(each, _EXPERTS, None) == _GROUPED]
    for config in grouped:
        setattr(config, _EXPERTS, "eager")
    for embedding in dtypes:
        embedding.dtype = dtype
    handles = []
    for part in module.modules():
        if part._parameters:
            handles.append(part.register_forward_pre_hook(widen, with_kwargs=True))
            handles.append(part.register_forward_hook(restore, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for part in list(held):
            restore(part)
        for embedding, own in dtypes.items():
            embedding.dtype = own
        for config in grouped:
            setattr(config, _EXPERTS, _GROUPED)
