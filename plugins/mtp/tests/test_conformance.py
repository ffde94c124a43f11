"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import copy
import json
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from mtp_check.assistants import make_pair
from mtp_check.targets import scramble
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdec_plugin_mtp import MtpHead
from specdec_plugin_mtp.saving import layer_tensors
from specdec_testing import ProposerConformance
from specdec_testing.support.tiny import tiny_model


@cache
def layers(num_layers: int = 1) -> str:
    """Return a directory with random layers for the kit's tiny target, the same in every process."""
    torch.manual_seed(9)
    target = copy.deepcopy(tiny_model())
    head = MtpHead(target.config, target.model.embed_tokens, target.lm_head, 97, num_layers=num_layers)
    scramble(head)
    folder = Path(tempfile.mkdtemp(prefix="layers-"))
    save_file(layer_tensors(head, target.config.num_hidden_layers), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_nextn_predict_layers": num_layers}))
    return str(folder)


@pytest.mark.few_promises
class TestGreedyChain(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {"model": layers(), "num_speculative_tokens": 3, "draft_sample_method": "greedy"}


@pytest.mark.full
class TestCoupledChain(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {"model": layers()}


class TestDrawnChain(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {
        "model": layers(),
        "num_speculative_tokens": 3,
        "rejection_sample_method": "probabilistic",
    }


@pytest.mark.few_promises
class TestTree(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {"model": layers(), "num_speculative_tokens": 6, "tree_top_k": 2}


@pytest.mark.full
class TestDrawnTree(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {
        "model": layers(),
        "num_speculative_tokens": 6,
        "tree_top_k": 2,
        "rejection_sample_method": "probabilistic",
    }


class TestTwoLayersDrawnTree(ProposerConformance):
    method = "mtp"
    model = "tiny"
    config = {
        "model": layers(2),
        "num_speculative_tokens": 4,
        "tree_top_k": 2,
        "rejection_sample_method": "probabilistic",
    }


@cache
def pair() -> tuple[PreTrainedModel, str]:
    """Return a Gemma 4 target, and the folder of its assistant."""
    made = make_pair("dense", Path(tempfile.mkdtemp(prefix="assistant-")), is_ordered=True)
    target = AutoModelForCausalLM.from_pretrained(made.target, attn_implementation="eager")
    return target.eval(), str(made.assistant)


@pytest.mark.full
class TestAssistant(ProposerConformance):
    method = "mtp"
    model = pair()[0]
    config = {"model": pair()[1], "num_speculative_tokens": 3}


class TestDrawingAssistant(ProposerConformance):
    method = "mtp"
    model = pair()[0]
    config = {
        "model": pair()[1],
        "num_speculative_tokens": 3,
        "rejection_sample_method": "probabilistic",
    }
