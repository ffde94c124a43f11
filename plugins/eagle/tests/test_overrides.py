"""What exporters write in more than one way, and keys that override what a `config.json` tells wrongly or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eagle_check.layout import Layout, write_head
from eagle_check.session import EagleSession
from eagle_check.shape import Shape, random_tensors
from eagle_check.targets import make_proposer, make_reference
from head_check.session import whole_life

PARALLEL = Shape(num_logits=40, has_map=True, mask_id=60)


@pytest.mark.parametrize("keys", [{}, {"mask_token_id": 60}], ids=["mask token in the file", "as a key"])
def test_a_mask_feature_of_three_dimensions(tmp_path: Path, keys: dict[str, Any]) -> None:
    """speculators and SpecForge write `[1, 1, 3 H]`; SpecForge writes no mask token."""
    tensors = random_tensors(PARALLEL)
    written = tensors | {"mask_hidden": tensors["mask_hidden"][None]}
    path = write_head(tmp_path, PARALLEL, written, Layout(without=("ptd_token_id",) if keys else ()))
    proposer = make_proposer(path, PARALLEL, is_eager=True, parallel_drafting=True, **keys)
    session = EagleSession(proposer, make_reference(PARALLEL, tensors), is_parallel=True)
    whole_life(session)
    assert session.num_compared > 20


@pytest.mark.parametrize("is_normed", [False, True])
def test_the_norm_of_the_carry_may_be_told(tmp_path: Path, is_normed: bool) -> None:
    told, trained = Shape(is_normed_carry=not is_normed), Shape(is_normed_carry=is_normed)
    tensors = random_tensors(told)
    path = write_head(tmp_path, told, tensors)
    proposer = make_proposer(
        path, told, is_eager=True, draft_sample_method="probabilistic", norm_output=is_normed
    )
    session = EagleSession(proposer, make_reference(trained, tensors))
    whole_life(session)
    assert session.num_compared > 50
