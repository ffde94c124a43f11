"""Models whose weights stay in blocks, in checkpoints of `transformers`: a quantisation method of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from specdec_runtime.interfaces.blocks import BlockEmbedding, BlockLinear

METHOD = "specdec_blocks"
"""Name of the method in `config.json`."""


@register_quantization_config(METHOD)
class BlockConfig(QuantizationConfigMixin):
    """Which modules have weights in blocks.

    Args:
        kinds: kind of each module's blocks, by its name.
        more: what the base class keeps.
    """

    def __init__(self, kinds: Mapping[str, str], **more: Any) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]  # an enumeration of the library's own
        self.kinds = dict(kinds)


@register_quantizer(METHOD)
class BlockQuantizer(HfQuantizer):
    """Puts modules with blocks into a model before its weights are loaded."""

    quantization_config: BlockConfig
    requires_calibration = False
    is_trainable = False

    def is_serializable(self) -> bool:
        """Whether such a model can be saved."""
        return True

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        with torch.device("meta"):
            put_modules(model, self.quantization_config.kinds)


def put_modules(model: PreTrainedModel, kinds: Mapping[str, str]) -> None:
    """Replace modules by ones with uninitialised blocks.

    Args:
        model: the model, in the dtype that it runs in.
        kinds: kind of each module's blocks, by its name.
    """
    for name, kind in kinds.items():
        module = model.get_submodule(name)
        made: BlockLinear | BlockEmbedding
        if isinstance(module, nn.Linear):
            made = BlockLinear(kind, module.out_features, module.in_features, module.bias is not None)
            made.bias = module.bias
            made.input_bits = 8 * min(3, model.dtype.itemsize)
        else:
            assert isinstance(module, nn.Embedding)
            factor = torch.tensor(getattr(module, "scalar_embed_scale", 1.0), dtype=model.dtype, device="cpu")
            size = module.num_embeddings, module.embedding_dim
            made = BlockEmbedding(kind, *size, model.dtype, float(factor))
        model.set_submodule(name, made)


def round_inputs(model: nn.Module, bits: int) -> None:
    """Have products with weights in blocks take inputs of so many bits."""
    for module in model.modules():
        if isinstance(module, BlockLinear):
            module.input_bits = bits
