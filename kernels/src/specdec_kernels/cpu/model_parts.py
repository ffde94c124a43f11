"""The parts of a language model, prepared for compiled passes."""

from __future__ import annotations

from typing import cast

from torch import nn
from transformers import PreTrainedModel

from specdec.interfaces import Declined
from specdec_kernels.cpu.ends import model_ends
from specdec_kernels.cpu.linear import compiled_linear
from specdec_kernels.cpu.stack import CompiledStack
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.rotary import RotaryTables
from specdec_kernels.layers.structure import like_of, model_parts
from specdec_runtime.interfaces import BlockLinear, QuantizedLinear, Runner


def model_stack(runner: Runner) -> tuple[CompiledStack, RotaryTables] | Declined:
    """Return a model prepared for compiled passes, and its rotary factors."""
    model = cast(PreTrainedModel, runner.module)
    is_quantized = any(_is_quantized(module) for module in model.modules())
    parts = (
        model_parts(model, runner.windows, _is_quantized)
        if is_quantized
        else model_parts(model, runner.windows)
    )
    if isinstance(parts, Declined):
        return parts
    layers = [FusedLayer(layer, make_linear=compiled_linear) for layer in parts.layers]
    ends = model_ends(parts, compiled_linear([parts.head]))
    if ends is None or not CompiledStack.supports(layers, ends):
        return Declined(
            "compiled passes are for norms of one kind, in float32 or bfloat16; this model is in "
            f"{str(runner.dtype).removeprefix('torch.')}"
        )
    return CompiledStack(layers, ends), RotaryTables(parts.rotary, like_of(parts.embed_tokens), parts.layers)


def _is_quantized(module: nn.Module | None) -> bool:
    return isinstance(module, QuantizedLinear | BlockLinear)
