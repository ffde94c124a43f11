"""The backend `layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from specdec.interfaces import SPECDEC_API, Backend, Declined, DraftHead, Form, Runner
from specdec_kernels.layers.structure import llama_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LayersBackend(Backend):
    """Fused layers on any device; batch-invariant ones where the kernels run."""

    name: ClassVar[str] = "layers"
    api_version: ClassVar[int] = SPECDEC_API
    order: ClassVar[int] = 30

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        """See `Backend.form`."""
        if isinstance(runner.module, DraftHead):
            return Declined("heads run through their own forward")
        model = cast("PreTrainedModel", runner.module)
        parts = llama_parts(model)
        if parts is None:
            is_spread = any(hasattr(module, "_hf_hook") for module in model.modules())
            return Declined(
                f"its layers are {'spread by device_map' if is_spread else 'not of the Llama structure'}"
            )
        from specdec_kernels.layers.form import LayersForm

        if not runner.is_invariant:
            return LayersForm(parts, runner, is_invariant=False)
        if not getattr(runner.attention, "is_invariant", False):
            return Declined("batch-invariant layers need the attention of backend triton")
        form = LayersForm(parts, runner, is_invariant=True)
        return form if form.is_silu else Declined("there is no batch-invariant kernel for its activation")
