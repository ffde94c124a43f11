"""The backend `cpu`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from specdec.interfaces import SPECDEC_API, Compiled, Declined, RowOperations, Verify
from specdec_kernels.cpu.compiled.threads import is_available
from specdec_runtime.interfaces import (
    AttentionFactory,
    AttentionNeeds,
    BlockLinear,
    Form,
    ModelBackend,
    QuantizedLinear,
    Runner,
)

_ELSEWHERE = Declined("the model is not on the CPU", is_elsewhere=True)
_UNAVAILABLE = Declined("compiled loops do not run here")


class CpuBackend(ModelBackend):
    """Compiled loops for float32 and bfloat16 on the CPU."""

    name: ClassVar[str] = "cpu"
    api_version: ClassVar[int] = SPECDEC_API
    order: ClassVar[int] = 20

    def compiled(self, device: torch.device) -> Compiled | None:
        """Return how much is compiled for this processor."""
        if _declined(device) is not None:
            return None
        from specdec_kernels.cpu.compiled.cache import counts
        from specdec_kernels.cpu.compiled.target import TARGET

        return Compiled("exactly this processor" if TARGET is None else TARGET.name, *counts())

    def attention(self, needs: AttentionNeeds) -> AttentionFactory | Declined:
        """Return a factory of its attention, or why it has none for these needs."""
        if (declined := _declined(needs.device)) is not None:
            return declined
        if needs.dtype != torch.float32:
            return Declined("its attention outside whole passes is for float32")
        from specdec_kernels.cpu.attention import CpuAttention

        return CpuAttention

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        """Return its form of a runner's model, or why it cannot run it."""
        if (declined := _declined(runner.device)) is not None:
            return declined
        from specdec_kernels.cpu.form import make_form

        return make_form(runner, stage, inner)

    def linear(
        self, module: nn.Linear | BlockLinear | QuantizedLinear
    ) -> Callable[[torch.Tensor], torch.Tensor] | Declined:
        """Return its product for a linear module, or why it has none."""
        if isinstance(module, QuantizedLinear):
            return Declined("weights of 8 and 4 bits are read by its compiled passes alone")
        if (declined := _declined(module.weight.device)) is not None:
            return declined
        if not isinstance(module, BlockLinear) and module.weight.dtype not in (torch.float32, torch.bfloat16):
            return Declined("products are for float32, bfloat16 and blocks")
        from specdec_kernels.cpu.linear import ModuleProduct

        return ModuleProduct(module)

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        """Return its verification for a sampler, or why it has none."""
        if (declined := _declined(device)) is not None:
            return declined
        from specdec_kernels.cpu.verification import rejection, strict

        if sampler == "strict":
            return strict.Walk()
        if sampler in ("probabilistic", "block"):
            return partial(rejection.verify, is_block=sampler == "block")
        return Declined(f"it does not verify by {sampler!r}")

    def row_operations(self, device: torch.device) -> RowOperations | Declined:
        """Return its operations on rows of logits, or why it has none for the device."""
        if (declined := _declined(device)) is not None:
            return declined
        from specdec_kernels.cpu.rows.operations import CpuRows

        return CpuRows()


def _declined(device: torch.device) -> Declined | None:
    if device.type != "cpu":
        return _ELSEWHERE
    return None if is_available() else _UNAVAILABLE
