"""Drafts equal a plain reference of the published formulas, for every layout, shape and way of drafting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dflash_check.session import BlockSession, make_proposer, make_reference
from dflash_check.shape import Layout, Shape, make_head
from head_check.session import whole_life

FLAT = Shape()
SMALL = replace(FLAT, num_logits=40, has_map=True, has_own_lm_head=True)
SPECULATORS = Layout(is_speculators=True)
WINDOW = replace(FLAT, windows=(5, 5), causal=(True, True))
MIXED = replace(FLAT, windows=(5, None), causal=(True, False))
CASES: dict[str, tuple[Shape, Layout]] = {
    "flat": (FLAT, Layout()),
    "sharded, prefix": (FLAT, Layout(is_sharded=True, prefix="model.")),
    "one layer": (replace(FLAT, num_layers=1, windows=(None,), causal=(False,), aux=(4,)), Layout()),
    "default layers": (replace(FLAT, aux=(2, 6)), Layout(inner_keys={"target_layer_ids": None})),
    "layers of the first and last": (replace(FLAT, aux=(1, 8)), Layout()),
    "reduced": (SMALL, Layout(renamed={"d2t": "draft_id_to_target_id"})),
    "own embedding and projection": (replace(FLAT, has_own_embedding=True, has_own_lm_head=True), Layout()),
    "narrow": (
        replace(SMALL, hidden=24, head_dim=6, has_own_embedding=True),
        Layout(keys={"block_size": None}, inner_keys={"block_size": 6}),
    ),
    "attention bias": (replace(FLAT, has_attention_bias=True), Layout()),
    "soft cap": (replace(FLAT, softcap=1.5, logit_scale=0.7), Layout()),
    "causal": (replace(FLAT, causal=(True, True)), Layout(inner_keys={"causal": True})),
    "windows": (WINDOW, Layout()),
    "windows, some layers": (MIXED, Layout()),
    "windows, not causal": (
        replace(WINDOW, windows=(6, 6), causal=(False, False)),
        Layout(keys={"is_causal": False}),
    ),
    "windows of all layers": (
        replace(WINDOW, causal=(False, False)),
        Layout(
            keys={"layer_types": ["full_attention"] * 2, "sliding_window": None},
            inner_keys={"use_swa": True, "swa_window_size": 5, "causal": False},
        ),
    ),
    "speculators": (SMALL, SPECULATORS),
    "speculators, windows": (replace(MIXED, is_from_anchor=True), SPECULATORS),
    "speculators, windows, not causal": (
        replace(WINDOW, causal=(False, False), is_from_anchor=True),
        replace(SPECULATORS, keys={"sliding_window_non_causal": True}),
    ),
    "speculators, at the anchor": (replace(SMALL, predicts_at_anchor=True, block_size=5), SPECULATORS),
}
WAYS: dict[str, dict[str, Any]] = {
    "drawn": {"draft_sample_method": "probabilistic"},
    "coupled": {"draft_sample_method": "coupled"},
    "candidates": {"num_speculative_tokens": 9, "tree_top_k": 3, "draft_sample_method": "probabilistic"},
}
# Each case draws one way, compiled or not, and drafts otherwise the other way, in turn; drawing the other way is slow.
RUNS = [
    pytest.param(
        case,
        way,
        is_eager,
        id=f"{case}-{way}-{'eager' if is_eager else 'compiled'}",
        marks=() if place in (number // 2 % 2, 2) else pytest.mark.slow,
    )
    for number, case in enumerate(CASES)
    for place, (way, is_eager) in enumerate(
        (
            ("drawn", False),
            ("drawn", True),
            (("coupled", "candidates")[number % 2], number // 2 % 2 == 0),
        )
    )
]


@pytest.mark.parametrize(("case", "way", "is_eager"), RUNS)
@pytest.mark.sampled(10, slow=14)
def test_every_logit_is_the_references(tmp_path: Path, case: str, way: str, is_eager: bool) -> None:
    shape, layout = CASES[case]
    folder, tensors = make_head(tmp_path, shape, layout)
    proposer = make_proposer(folder, is_eager=is_eager, **WAYS[way])
    assert proposer.aux_layer_ids == shape.aux
    session = BlockSession(proposer, make_reference(shape, tensors))
    whole_life(session, proposer.config.num_speculative_tokens)
    assert session.num_compared > 50
