"""Whole folders of models and heads, and a GGUF file: what tests damage."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from dflash_check.shape import Shape, make_head
from safetensors.torch import save_file
from tiny_gguf import write_gguf

import specdec_zoo
from specdec_plugin_mlp.mlp_speculator.checkpoint import save_mlp_speculator
from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout
from specdec_plugin_mlp.mlp_speculator.model import MLPSpeculator

TARGET, GGUF = "target", "gguf"
HEADS = ("eagle", "eagle3", "mtp", "draft_model", "mlp_speculator", "medusa", "dflash")
KINDS = (TARGET, TARGET, GGUF, *HEADS)
WEIGHTS, CONFIG = "model.safetensors", "config.json"
WIDTH, VOCAB, NUM_LAYERS = 256, 4096, 15
"""Of the zoo's target, which the heads are for."""


@cache
def _bases() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="whole-folders-")  # removed when the process ends


@cache
def base(kind: str) -> Path:
    """Return a folder of this kind, to be copied."""
    folder = Path(_bases().name) / kind
    if kind in (TARGET, "draft_model"):
        shutil.copytree(specdec_zoo.path("draft"), folder)
    elif kind == GGUF:
        folder.mkdir()
        write_gguf(folder / "tiny.gguf")
    elif kind == "mlp_speculator":
        torch.manual_seed(0)
        layout = MLPSpeculatorLayout(vocab_size=VOCAB, emb_dim=WIDTH, inner_dim=16, n_predict=2)
        save_mlp_speculator(MLPSpeculator(layout), folder)
    elif kind == "medusa":
        folder.mkdir()
        config = {
            "model_type": kind,
            "hidden_size": WIDTH,
            "vocab_size": VOCAB,
            "num_heads": 2,
            "num_hidden_layers": 1,
            "truncated_vocab_size": 64,
        }
        (folder / CONFIG).write_text(json.dumps(config))
        names = {f"lm_heads.{i}.weight": (64, WIDTH) for i in range(2)} | {
            f"blocks.{i}.layers.0.weight": (WIDTH, WIDTH) for i in range(2)
        }
        save_file({name: torch.zeros(shape) for name, shape in names.items()}, folder / WEIGHTS)
    elif kind == "dflash":
        make_head(
            folder, Shape(VOCAB, WIDTH, WIDTH, head_dim=64, num_target_layers=NUM_LAYERS, num_logits=VOCAB)
        )
    else:
        shutil.copytree(specdec_zoo.path(kind), folder)
    return folder
