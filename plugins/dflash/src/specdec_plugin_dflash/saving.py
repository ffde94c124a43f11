"""Writes heads in the published format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.names import published_name


def save_dflash(head: DFlashHead, directory: Path, config: Mapping[str, Any]) -> None:
    """Write a head in the published format: `fc`, `hidden_norm`, `layers.*`, `norm`, and for a reduced vocabulary `lm_head`
    and `d2t`.

    Args:
        head: the head, in the type it is stored in; its embedding is the target's, and so is its output projection if it can
            draft all ids.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
    """
    shared = ("model.model.embed_tokens.",) + (("model.lm_head.",) if head.target_ids is None else ())
    tensors = {
        published_name(name): value.detach().cpu().contiguous().clone()
        for name, value in head.named_parameters()
        if not name.startswith(shared)
    }
    if head.target_ids is not None:
        ids = head.target_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        size = head.settings.layer_config.vocab_size
        tensors["t2d"] = torch.zeros(size, dtype=torch.bool).index_fill(0, ids, True)
    directory.mkdir(parents=True, exist_ok=True)
    described = {
        "architectures": ["DFlashDraftModel"],
        **config,
        "torch_dtype": str(head.fc.weight.dtype).removeprefix("torch."),
    }
    (directory / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
