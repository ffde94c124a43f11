"""The backend `layers`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import nn

from specdec.interfaces import SPECDEC_API, Declined
from specdec_kernels.layers.structure import model_parts
from specdec_runtime.interfaces import BlockLinear, DraftHead, Form, ModelBackend, QuantizedLinear, Runner

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LayersBackend(ModelBackend):
    """Fused layers on any device; batch-invariant ones where the kernels run."""

    name: ClassVar[str] = "layers"
    api_version: ClassVar[int] = SPECDEC_API
    order: ClassVar[int] = 30

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        """Return its form of a runner's model, or why it cannot run it."""
        if isinstance(runner.module, DraftHead):
            return Declined("heads run through their own forward")
        parts = model_parts(cast("PreTrainedModel", runner.module), runner.windows)
        if isinstance(parts, Declined):
            return parts
        if parts.is_llama and _has_kernels(runner):
            from specdec_kernels.layers.device_form import DeviceForm  # imports Triton

            return DeviceForm(parts, runner, is_invariant=runner.is_invariant)
        if runner.is_invariant:
            return Declined(
                "batch-invariant layers need the attention of backend triton"
                if parts.is_llama
                else "there are batch-invariant kernels for layers of Llama only"
            )
        from specdec_kernels.layers.form import LayersForm

        return LayersForm(parts, runner)

    def linear(
        self, module: nn.Linear | BlockLinear | QuantizedLinear
    ) -> Callable[[torch.Tensor], torch.Tensor] | Declined:
        """Return torch's product with weights of 8 or 4 bits, or why there is none."""
        if not isinstance(module, QuantizedLinear):
            return Declined("its products are for weights of 8 and 4 bits")
        from specdec_kernels.layers.packed import packed_product

        return packed_product(module)


def _has_kernels(runner: Runner) -> bool:
    """Whether the runner's attention is that of the kernels, so that they run here, and they have its dtype."""
    if find_spec("triton") is None:
        return False
    from specdec_kernels.cuda.attention import PagedAttention

    attention = runner.attention
    return (
        isinstance(attention, PagedAttention)
        and runner.dtype in attention.dtypes
        and attention.is_invariant >= runner.is_invariant
    )
