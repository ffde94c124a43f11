"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
from eagle_check.layout import Layout
from eagle_check.shape import Shape
from eagle_check.targets import make_head
from head_check.target import target_model

from specdec_testing import ProposerConformance

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape(num_logits=40, has_map=True)
PARALLEL = Shape(num_logits=40, has_map=True, mask_id=60)


@cache
def head(shape: Shape) -> str:
    """Return the directory of a random head, the same in every process."""
    return make_head(Path(tempfile.mkdtemp(prefix="head-")), shape, Layout())[0]


class Eagle(ProposerConformance):
    method = "eagle"
    model = target_model()


class Eagle3(ProposerConformance):
    method = "eagle3"
    model = target_model()


@pytest.mark.full
class TestEagleGreedyChain(Eagle):
    config = {"model": head(ONE), "num_speculative_tokens": 3, "draft_sample_method": "greedy"}


@pytest.mark.full
class TestEagleCoupledChain(Eagle):
    config = {"model": head(ONE), "num_speculative_tokens": 4}


@pytest.mark.few_promises
class TestEagleDrawnChain(Eagle):
    config = {"model": head(ONE), "num_speculative_tokens": 3, "rejection_sample_method": "probabilistic"}


@pytest.mark.few_promises
class TestEagleCoupledTree(Eagle):
    config = {
        "model": head(ONE),
        "num_speculative_tokens": 7,
        "tree_top_k": 3,
        "draft_sample_method": "coupled",
    }


@pytest.mark.full
class TestGreedyChain(Eagle3):
    config = {"model": head(THREE), "num_speculative_tokens": 3, "draft_sample_method": "greedy"}


@pytest.mark.full
class TestCoupledChainWithThreshold(Eagle3):
    config = {"model": head(THREE), "num_speculative_tokens": 4, "draft_confidence_threshold": 0.03}


@pytest.mark.full
class TestDrawnChain(Eagle3):
    config = {"model": head(THREE), "num_speculative_tokens": 3, "rejection_sample_method": "block"}


class TestGreedyTree(Eagle3):
    config = {
        "model": head(THREE),
        "num_speculative_tokens": 8,
        "tree_top_k": 3,
        "tree_depth": 3,
        "draft_sample_method": "greedy",
    }


@pytest.mark.few_promises
class TestDrawnStaticTree(Eagle3):
    config = {
        "model": head(THREE),
        "num_speculative_tokens": 6,
        "tree_choices": [[0], [1], [2], [0, 0], [0, 1], [1, 0]],
        "rejection_sample_method": "probabilistic",
    }


@pytest.mark.full
class TestDrawnCombWithThreshold(Eagle3):
    config = {
        "model": head(THREE),
        "num_speculative_tokens": 5,
        "tree_top_k": 2,
        "draft_confidence_threshold": 0.02,
        "rejection_sample_method": "probabilistic",
    }


class TestParallel(Eagle3):
    config = {
        "model": head(PARALLEL),
        "num_speculative_tokens": 4,
        "parallel_drafting": True,
        "rejection_sample_method": "probabilistic",
    }
