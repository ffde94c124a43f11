"""Methods with heads that nobody trained: their drafts rarely stand, and cost what those of others do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from dflash_check.shape import Shape, make_head
from safetensors.torch import save_file

import specdec_zoo
from specdec_plugin_mlp import Medusa, MedusaLayout, MLPSpeculator, MLPSpeculatorLayout, save_mlp_speculator

NAMES = ("mlp", "medusa", "parallel", "dflash")
"""What `make` makes; `parallel` is a draft model with a mask token, whose first guesses are good."""


def make(name: str, folder: Path) -> dict[str, Any]:
    """Write the head of a method for the zoo's target to an empty folder; returns the configuration."""
    torch.manual_seed(0)
    more = {"model": str(folder), "num_speculative_tokens": 3}
    if name == "mlp":
        layout = MLPSpeculatorLayout(vocab_size=4096, emb_dim=256, inner_dim=48, n_predict=3)
        save_mlp_speculator(MLPSpeculator(layout), folder)
        return {"method": "mlp_speculator"} | more
    if name == "medusa":
        sizes = {"vocab_size": 4096, "hidden_size": 256, "num_heads": 3, "num_hidden_layers": 1}
        (folder / "config.json").write_text(json.dumps({"model_type": "medusa", **sizes}))
        save_file(Medusa(MedusaLayout(**sizes)).state_dict(), folder / "model.safetensors")
        return {"method": "medusa"} | more
    if name == "parallel":
        shutil.copytree(specdec_zoo.path("draft"), folder, dirs_exist_ok=True)
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"pard_token": 3}))
        return {"method": "draft_model", "parallel_drafting": True} | more
    sizes = {"hidden": 256, "target_hidden": 256, "head_dim": 64, "num_target_layers": 15, "aux": (2, 7, 12)}
    make_head(folder, Shape(vocab=4096, num_logits=4096, **sizes))
    return {"method": "dflash"} | more
