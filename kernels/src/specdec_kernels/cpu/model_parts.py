"""The parts of a language model, prepared for compiled passes."""

from __future__ import annotations

from typing import cast

from torch import nn
from transformers import PreTrainedModel

from specdec.interfaces import Declined, QuantizedLinear, Runner
from specdec_kernels.cpu.ends import model_ends
from specdec_kernels.cpu.linear import Product, compiled_linear
from specdec_kernels.cpu.stack import CompiledStack, Norm, head_norms
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.rotary import RotaryTable
from specdec_kernels.layers.structure import llama_parts


def model_stack(runner: Runner) -> tuple[CompiledStack, RotaryTable] | Declined:
    """Return a model prepared for compiled passes, and its rotary factors."""
    model = cast(PreTrainedModel, runner.module)
    parts = llama_parts(model) or llama_parts(model, _is_quantized)
    if parts is None:
        return Declined("its layers are not of the Llama structure")
    layers = [
        FusedLayer(layer, runner.windows[layer.self_attn.layer_idx], make_linear=compiled_linear)  # type: ignore[union-attr, index]  # checked by structure
        for layer in parts.layers
    ]
    embedding = parts.embed_tokens.weight.detach()
    ends = model_ends(embedding, compiled_linear([parts.head]))
    norms, factors = _norms(layers, FastNorm(parts.norm)), [head_norms(layer) for layer in layers]
    if ends is None or not CompiledStack.supports(layers, norms, factors, ends):
        return Declined(
            f"compiled passes are for layers of one shape, with SiLU, in float32 or bfloat16; this model is in "
            f"{str(runner.dtype).removeprefix('torch.')}"
        )
    return CompiledStack(layers, norms, factors, ends), RotaryTable(parts.rotary, embedding)


def _is_quantized(module: nn.Module | None) -> bool:
    return isinstance(module, QuantizedLinear)


def _norms(layers: list[FusedLayer[Product]], final_norm: FastNorm) -> list[Norm | None]:
    """Return weight and epsilon of each layer's two norms (models always have both) and of the final norm."""
    norms = [n for layer in layers for n in (layer.input_norm, layer.post_norm)] + [final_norm]
    return [(n.weight.float().numpy(), n.epsilon) for n in norms if n is not None]
