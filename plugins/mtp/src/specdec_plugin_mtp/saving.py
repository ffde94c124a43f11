"""Writes a head's layers into a target's checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec.config import Checkpoint
from specdec_plugin_mtp.head import MtpHead

_CONFIG, _WEIGHTS, _INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MTP_FILE = "model-mtp.safetensors"
"""Name of the file with the layers."""


def add_mtp_layers(target_dir: str | Path, head: MtpHead, out_dir: str | Path) -> None:
    """Write a target's directory with a head's layers added, under the names of the head's layout.

    For DeepSeek's layout the names are `model.layers.{L}.*`, where L is the target's number of layers, as in published
    targets. The layers go into a separate file: beside a single `model.safetensors`, where `transformers` ignores it when it
    loads the target, or as an additional shard of an index. `config.json` gets `num_nextn_predict_layers`.

    Args:
        target_dir: the target: `config.json` and safetensors; all other files are copied too.
        head: the layers, in the dtype to store; modules shared with the target are not written again.
        out_dir: output directory; may be `target_dir`.

    Raises:
        ValueError: if the target is not such a directory, already has such layers or names files outside, or if the head has
            MoE layers.
    """
    source, goal = Path(target_dir), Path(out_dir)
    if not (source / _CONFIG).is_file() or not any((source / name).is_file() for name in (_WEIGHTS, _INDEX)):
        raise ValueError(
            f"{source} holds no {_CONFIG} with {_WEIGHTS} or {_INDEX}: it is not a target's directory"
        )
    Checkpoint(str(source)).check_names()
    config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
    tensors = layer_tensors(head, int(config["num_hidden_layers"]))
    held = _names(source)
    twice = sorted(held & set(tensors))
    if twice:
        raise ValueError(f"{source} has a tensor {twice[0]!r} already: take the target without such layers")
    goal.mkdir(parents=True, exist_ok=True)
    if source.resolve() != goal.resolve():
        for file in sorted(source.iterdir()):
            if file.is_file():
                shutil.copyfile(file, goal / file.name)
    save_file(tensors, goal / MTP_FILE, metadata={"format": "pt"})
    if (source / _INDEX).is_file():
        index = json.loads((source / _INDEX).read_text(encoding="utf-8"))
        index["weight_map"] |= dict.fromkeys(tensors, MTP_FILE)
        if "total_size" in index.get("metadata", {}):
            index["metadata"]["total_size"] += sum(t.numel() * t.element_size() for t in tensors.values())
        _write_json(index, goal / _INDEX)
    _write_json({**config, "num_nextn_predict_layers": head.num_stages}, goal / _CONFIG)


def layer_tensors(head: MtpHead, num_target_layers: int) -> dict[str, torch.Tensor]:
    """Return a head's own tensors by their published names, copied to the CPU.

    Args:
        head: the layers.
        num_target_layers: the target's number of layers, which is the number of the first layer.

    Raises:
        ValueError: if the head has MoE layers.
    """
    shared = ("embed_tokens.", "lm_head.")
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(head.num_stages):
        for name, weight in head.stage(layer).state_dict().items():
            if ".experts." in name:
                raise ValueError("layers with a mixture of experts are not written: train dense ones")
            if not name.startswith(shared):
                published = head.layout.published(name, layer, num_target_layers)
                tensors[published] = weight.detach().cpu().contiguous().clone()
    return tensors


def _names(directory: Path) -> set[str]:
    """Return the names of all tensors in a directory."""
    names: set[str] = set()
    for file in directory.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            names |= set(opened.keys())
    return names


def _write_json(value: object, path: Path) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
