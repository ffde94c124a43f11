"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from dflash_check.shape import Layout, Shape, make_head, make_staged
from head_check.target import target_model

from specdec_testing import ProposerConformance

FLAT = Shape()
REDUCED = replace(FLAT, num_logits=40, has_map=True, has_own_lm_head=True)
WINDOWS = replace(FLAT, windows=(5, None), causal=(True, False))


@cache
def head(shape: Shape) -> str:
    """Return the directory of a random head, the same in every process."""
    return make_head(Path(tempfile.mkdtemp(prefix="head-")), shape, Layout())[0]


@cache
def staged(family: str) -> str:
    """Return the directory of a random head with the stage of a family."""
    return make_staged(Path(tempfile.mkdtemp(prefix="head-")), FLAT, family)


class DFlash(ProposerConformance):
    method = "dflash"
    model = target_model()


@pytest.mark.few_promises
class TestCoupledChain(DFlash):
    config = {"model": head(FLAT), "num_speculative_tokens": 5}


@pytest.mark.full
class TestGreedyChain(DFlash):
    config = {"model": head(FLAT), "num_speculative_tokens": 4, "draft_sample_method": "greedy"}


class TestDrawnChain(DFlash):
    config = {"model": head(REDUCED), "num_speculative_tokens": 4, "rejection_sample_method": "probabilistic"}


@pytest.mark.full
class TestDrawnBlocksWithThreshold(DFlash):
    config = {
        "model": head(REDUCED),
        "num_speculative_tokens": 5,
        "draft_confidence_threshold": 0.03,
        "rejection_sample_method": "block",
    }


class TestWindows(DFlash):
    config = {"model": head(WINDOWS), "num_speculative_tokens": 4, "rejection_sample_method": "probabilistic"}


class TestDrawnStage(DFlash):
    config = {
        "model": staged("xpress"),
        "num_speculative_tokens": 4,
        "rejection_sample_method": "probabilistic",
    }


@pytest.mark.full
class TestStageWithConfidence(DFlash):
    config = {
        "model": staged("dspark"),
        "num_speculative_tokens": 5,
        "draft_confidence_threshold": 0.4,
        "rejection_sample_method": "block",
    }


@pytest.mark.full
class TestDrawnCandidates(DFlash):
    config = {
        "model": head(FLAT),
        "num_speculative_tokens": 6,
        "tree_top_k": 2,
        "rejection_sample_method": "probabilistic",
    }
