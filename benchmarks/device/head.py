"""A head of EAGLE-3's shape that nobody trained: it costs what a trained one does."""

from __future__ import annotations

from pathlib import Path

import torch

from device.shape import Shape
from specdec_plugin_eagle import Eagle3Head, EagleSettings, save_eagle3


@torch.no_grad()
def write_random_head(
    shape: Shape, head_vocab_size: int, device: torch.device, dtype: torch.dtype, folder: Path
) -> int:
    """Write a head in the published format.

    Args:
        shape: of the target.
        head_vocab_size: ids that the head drafts.
        device: where it is made.
        dtype: of its weights.
        folder: where `config.json` and `model.safetensors` go.

    Returns:
        The bytes of its weights, which a step of a draft reads.
    """
    config = {**shape.config().to_dict(), "num_hidden_layers": 1, "draft_vocab_size": head_vocab_size}
    config["eagle_aux_hidden_state_layer_ids"] = [1, shape.num_layers // 2, shape.num_layers - 1]
    settings = EagleSettings.from_dict(config, "the head", is_eagle3=True)
    with torch.device(device):
        head = Eagle3Head(settings, torch.nn.Embedding(1, shape.hidden_size)).to(dtype)
        generator = torch.Generator(device).manual_seed(1)
        for weight in head.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight.shape[1] ** -0.5, generator=generator)
        head.config.vocab_size = shape.vocab_size
        head.target_ids = torch.arange(head_vocab_size) * (shape.vocab_size // head_vocab_size)
    save_eagle3(head, folder, config)
    own = (weight for name, weight in head.named_parameters() if not name.startswith("embed_tokens"))
    return sum(weight.nbytes for weight in own)
