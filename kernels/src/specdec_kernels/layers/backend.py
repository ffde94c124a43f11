"""The backend `layers`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, cast

from specdec.interfaces import SPECDEC_API, Backend, Declined, DraftHead, Form, Runner
from specdec_kernels.layers.structure import is_silu, llama_parts

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
        has_silu = all(is_silu(layer.mlp.act_fn) for layer in parts.layers)  # type: ignore[union-attr, arg-type]  # checked by structure
        if has_silu and _has_kernels(runner):
            from specdec_kernels.layers.device_form import DeviceForm  # imports Triton

            return DeviceForm(parts, runner, is_invariant=runner.is_invariant)
        if runner.is_invariant:
            return Declined(
                "batch-invariant layers need the attention of backend triton"
                if has_silu
                else "there is no batch-invariant kernel for its activation"
            )
        from specdec_kernels.layers.form import LayersForm

        return LayersForm(parts, runner)


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
