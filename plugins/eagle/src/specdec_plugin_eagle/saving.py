"""Writes heads in the published formats."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specdec_plugin_eagle.heads import Eagle3Head, EagleHead
from specdec_plugin_eagle.names import published_name


def save_eagle(
    head: EagleHead,
    directory: Path,
    config: Mapping[str, Any],
    shared: Collection[str] = ("embed_tokens", "lm_head"),
) -> None:
    """Write an EAGLE-1 head in the published format: `fc.*` and `layers.0.*`.

    Args:
        head: the head, in the type it is stored in.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
        shared: names of its modules that are the target's, which are not written.
    """
    own = _own(head, shared)
    tensors = {published_name(name, is_eagle3=False): value for name, value in own}
    _write(directory, tensors, {"architectures": ["LlamaForCausalLMEagle"], **config})


def save_eagle3(
    head: Eagle3Head,
    directory: Path,
    config: Mapping[str, Any],
    shared: Collection[str] = ("embed_tokens",),
) -> None:
    """Write an EAGLE-3 head in the published format: `midlayer.*`, `fc`, `norm`, `lm_head`, `d2t` and `t2d`.

    Args:
        head: the head, in the type it is stored in.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
        shared: names of its modules that are the target's, which are not written.
    """
    own = _own(head, shared)
    tensors = {published_name(name, is_eagle3=True): value for name, value in own}
    if head.target_ids is not None:
        ids = head.target_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(head.config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    _write(directory, tensors, {"architectures": ["LlamaForCausalLMEagle3"], **config})


def _own(head: torch.nn.Module, shared: Collection[str]) -> list[tuple[str, torch.Tensor]]:
    """Return a head's parameters, except those of modules shared with the target."""
    return [
        (name, value.detach().cpu().contiguous().clone())
        for name, value in head.named_parameters()
        if name.partition(".")[0] not in shared
    ]


def _write(directory: Path, tensors: dict[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    dtype = next(value.dtype for value in tensors.values() if value.is_floating_point())
    described = {**config, "torch_dtype": str(dtype).removeprefix("torch.")}
    (directory / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
