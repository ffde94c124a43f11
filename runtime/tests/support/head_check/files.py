"""Writes tensors as published heads have them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def write_tensors(folder: Path, named: dict[str, Tensor], *, is_sharded: bool = False) -> None:
    """Write tensors to one file, or to two and an index."""
    named = {name: tensor.contiguous() for name, tensor in named.items()}
    if not is_sharded:
        save_file(named, folder / "model.safetensors")
        return
    names = sorted(named)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: named[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
