"""Models with random weights that count: token t is followed by t + 1.

In a model with plain random weights the gaps between the best logits are smaller than the rounding of bfloat16. Two engines
soon disagree, and nothing can be drafted. Here the layers add little to the embedding, and the head looks up the next
token. Every weight is read and multiplied as in any model, and the text is the same in every engine and batch.
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from device.shape import Shape

_LAYERS_SHARE = 0.3
"""Magnitude of the sum of all layers' outputs, relative to the embedding."""


@torch.no_grad()
def counting_model(
    shape: Shape, device: torch.device, dtype: torch.dtype, *, seed: int = 0
) -> PreTrainedModel:
    """Make a model on a device.

    Args:
        shape: its sizes.
        device: where it is created.
        dtype: of its weights.
        seed: of its weights.
    """
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            shape.config(), dtype=dtype, attn_implementation="sdpa"
        )
    generator = torch.Generator(device).manual_seed(seed)
    added = _LAYERS_SHARE * (2 * shape.num_layers) ** -0.5
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.fill_(1.0)
        elif "embed_tokens" in name:
            weight.normal_(generator=generator)
        elif "lm_head" not in name:
            scale = added if "o_proj" in name or "down_proj" in name else 1.0
            weight.normal_(std=scale * weight.shape[1] ** -0.5, generator=generator)
    embedding, head = model.get_parameter("model.embed_tokens.weight"), model.get_parameter("lm_head.weight")
    head.copy_(embedding.roll(1, 0)).mul_(shape.hidden_size**-0.5)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None
    model.eval()
    return model
