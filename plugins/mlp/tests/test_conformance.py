"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specdec_plugin_mlp import (
    Medusa,
    MedusaLayout,
    MLPSpeculator,
    MLPSpeculatorLayout,
    save_mlp_speculator,
)
from specdec_testing import ProposerConformance


@cache
def chained(*, is_tied: bool = False) -> str:
    """Return the directory of random heads for the kit's tiny target, the same in every process."""
    torch.manual_seed(7)
    layout = MLPSpeculatorLayout(
        vocab_size=97, emb_dim=32, inner_dim=24, n_predict=3, tie_weights=is_tied, scale_input=is_tied
    )
    folder = Path(tempfile.mkdtemp(prefix="heads-"))
    save_mlp_speculator(MLPSpeculator(layout), folder)
    return str(folder)


@cache
def independent(*, has_map: bool = False) -> str:
    """Return the directory of random Medusa heads for the same target, all ids or every second one."""
    torch.manual_seed(8)
    truncated = {"truncated_vocab_size": 49} if has_map else {}
    config = {"hidden_size": 32, "vocab_size": 97, "num_heads": 3, "num_hidden_layers": 1} | truncated
    tensors = Medusa(MedusaLayout(**config)).state_dict()
    if has_map:
        tensors["token_map"] = torch.arange(0, 97, 2)
    folder = Path(tempfile.mkdtemp(prefix="heads-"))
    (folder / "config.json").write_text(json.dumps({"model_type": "medusa", **config}))
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.mark.full
class TestGreedyChain(ProposerConformance):
    method = "mlp_speculator"
    model = "tiny"
    config = {"model": chained(), "draft_sample_method": "greedy"}


class TestCoupledTree(ProposerConformance):
    method = "mlp"
    model = "tiny"
    config = {"model": chained(is_tied=True), "num_speculative_tokens": 6, "tree_top_k": 2}


@pytest.mark.few_promises
class TestDrawnChain(ProposerConformance):
    method = "mlp_speculator"
    model = "tiny"
    config = {"model": chained(is_tied=True), "rejection_sample_method": "probabilistic"}


@pytest.mark.full
class TestDrawnTreeWithThreshold(ProposerConformance):
    method = "mlp_speculator"
    model = "tiny"
    config = {
        "model": chained(),
        "num_speculative_tokens": 6,
        "rejection_sample_method": "block",
        "tree_top_k": 2,
        "draft_confidence_threshold": 0.02,
    }


@pytest.mark.few_promises
class TestMedusaTree(ProposerConformance):
    method = "medusa"
    model = "tiny"
    config = {"model": independent(), "num_speculative_tokens": 6, "tree_top_k": 2}


class TestMedusaDrawnFromSomeIds(ProposerConformance):
    method = "medusa"
    model = "tiny"
    config = {"model": independent(has_map=True), "rejection_sample_method": "probabilistic"}
