"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from speccheck.own_vocabulary import own_vocabulary_draft
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_testing import ProposerConformance


@cache
def draft() -> str:
    """Return the directory of a random draft for the kit's tiny target, the same in every process."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=256,
        pard_token=5,
    )
    folder = Path(tempfile.mkdtemp(prefix="draft-"))
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.few_promises
class TestGreedyChain(ProposerConformance):
    method = "draft_model"
    model = "tiny"
    config = {"model": draft(), "num_speculative_tokens": 3, "draft_sample_method": "greedy"}


class TestCoupledTree(ProposerConformance):
    method = "draft_model"
    model = "tiny"
    config = {
        "model": draft(),
        "num_speculative_tokens": 5,
        "draft_sample_method": "coupled",
        "tree_top_k": 2,
    }


class TestDrawnChain(ProposerConformance):
    method = "draft_model"
    model = "tiny"
    config = {"model": draft(), "num_speculative_tokens": 3, "rejection_sample_method": "probabilistic"}


@pytest.mark.few_promises
class TestDrawnTreeWithThreshold(ProposerConformance):
    method = "draft_model"
    model = "tiny"
    config = {
        "model": draft(),
        "num_speculative_tokens": 5,
        "rejection_sample_method": "block",
        "tree_top_k": 2,
        "draft_confidence_threshold": 0.02,
    }


class TestParallel(ProposerConformance):
    method = "draft_model"
    model = "tiny"
    config = {
        "model": draft(),
        "num_speculative_tokens": 4,
        "parallel_drafting": True,
        "rejection_sample_method": "probabilistic",
    }


@pytest.mark.few_promises
class TestOwnVocabulary(ProposerConformance):
    method = "draft_model"
    config = {
        "model": own_vocabulary_draft(),
        "num_speculative_tokens": 3,
        "use_heterogeneous_vocab": True,
        "rejection_sample_method": "probabilistic",
    }
