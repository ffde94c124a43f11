"""Drafts equal a plain reference of the published formulas, for every layout, shape and way of drafting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from eagle_check.layout import Layout
from eagle_check.session import EagleSession, config_of
from eagle_check.shape import Shape
from eagle_check.targets import make_head, make_proposer, make_reference
from head_check.session import whole_life

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape()
SMALL = replace(THREE, num_logits=40, has_map=True)
SPECULATORS = Layout(first_layer="layers.0.", is_speculators=True)
FUSION = {"fc.weight": "fusion_fc.weight", "fc.bias": "fusion_fc.bias"}
OLD_LAYER = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "post_attention_layernorm",
)
OLD = FUSION | {f"layers.0.{n}.weight": f"transformer.{n}.weight" for n in OLD_LAYER}
CASES: dict[str, tuple[Shape, Layout]] = {
    "1": (ONE, Layout()),
    "1 fc bias": (replace(ONE, has_fc_bias=True), Layout()),
    "1 para norms": (replace(ONE, has_para_norms=True), Layout()),
    "1 attention bias, sharded": (replace(ONE, has_attention_bias=True), Layout(is_sharded=True)),
    "1 two layers": (replace(ONE, num_layers=2), Layout()),
    "1 own embedding and projection": (
        replace(ONE, has_own_embedding=True, has_own_lm_head=True),
        Layout(prefix="model."),
    ),
    "1 logit scale": (replace(ONE, logit_scale=0.5), Layout()),
    "1 speculators": (
        replace(ONE, has_fc_bias=True),
        Layout(is_speculators=True, renamed=OLD),
    ),
    "3": (THREE, Layout()),
    "3 layers.0": (THREE, Layout(first_layer="layers.0.")),
    "3 sharded, prefix": (THREE, Layout(is_sharded=True, prefix="model.")),
    "3 reduced": (SMALL, Layout()),
    "3 map of all ids": (replace(THREE, has_map=True), Layout()),
    "3 own embedding": (replace(SMALL, has_own_embedding=True), Layout()),
    "3 no projection": (replace(THREE, has_own_lm_head=False), Layout()),
    "3 normed residual": (replace(SMALL, is_normed_residual=True), Layout(aux_place="eagle_config")),
    "3 norm before fc": (replace(SMALL, has_norm_before_fc=True), Layout()),
    "3 fc norms": (replace(SMALL, has_fc_norms=True, is_normed_residual=True), Layout()),
    "3 normed output": (replace(SMALL, is_normed_carry=True), Layout()),
    "3 narrow": (replace(SMALL, hidden=24, head_dim=6, has_own_embedding=True), Layout()),
    "3 attention bias": (replace(SMALL, has_attention_bias=True), Layout()),
    "3 two layers": (replace(SMALL, num_layers=2), Layout()),
    "3 no aux": (replace(SMALL, num_aux=0), Layout(aux_place=None)),
    "3 default aux": (SMALL, Layout(aux_place=None, aux_ids=(2, 4, 5))),
    "3 five aux": (replace(SMALL, num_aux=5), Layout(aux_ids=(0, 1, 3, 5, 7))),
    "3 qwen2": (replace(SMALL, family="qwen2", has_attention_bias=True), Layout()),
    "1 mistral": (replace(ONE, family="mistral"), Layout()),
    "1 mistral, window": (replace(ONE, family="mistral", window=7), Layout(keys={"sliding_window": 7})),
    "1 mistral, one layer with a window": (
        replace(ONE, family="mistral", window=7, windowed=(1,), num_layers=2),
        Layout(keys={"sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]}),
    ),
    "3 speculators, window": (
        replace(SMALL, window=5),
        replace(SPECULATORS, layer_keys={"sliding_window": 5, "layer_types": ["sliding_attention"]}),
    ),
    "3 speculators, one layer with a window": (
        replace(SMALL, window=5, windowed=(0,), num_layers=2),
        replace(
            SPECULATORS,
            layer_keys={"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
        ),
    ),
    "3 speculators": (replace(SMALL, theta=500.0), replace(SPECULATORS, aux_place=None)),
    "3 speculators normed residual by default": (
        replace(SMALL, is_normed_residual=True),
        replace(SPECULATORS, without=("norm_before_residual",)),
    ),
    "3 speculators qwen3": (replace(SMALL, family="qwen3"), SPECULATORS),
    "3 speculators qwen3, two layers, biases": (
        replace(SMALL, family="qwen3", num_layers=2, has_attention_bias=True, is_normed_carry=True),
        SPECULATORS,
    ),
}
# Each case drafts a chain one way and a tree the other way, in turn; what is left of both ways and both trees is slow.
RUNS = [
    pytest.param(
        case,
        kind,
        is_eager,
        id=f"{case}-{kind}-{'eager' if is_eager else 'compiled'}",
        marks=() if place in (number % 2, 2 + number // 2 % 2) else pytest.mark.slow,
    )
    for number, case in enumerate(CASES)
    for place, (kind, is_eager) in enumerate(
        (
            ("chain", False),
            ("chain", True),
            ("dynamic tree", number % 2 == 0),
            ("drawn tree", number % 2 == 0),
        )
    )
]


@pytest.mark.parametrize(("case", "kind", "is_eager"), RUNS)
@pytest.mark.sampled(16, slow=24)
def test_every_logit_is_the_references(tmp_path: Path, case: str, kind: str, is_eager: bool) -> None:
    shape, layout = CASES[case]
    folder, tensors = make_head(tmp_path, shape, layout)
    is_compiled = not is_eager and shape.logit_scale == 1.0
    proposer = make_proposer(folder, shape, is_eager=not is_compiled, **config_of(kind))
    if shape.is_eagle3 and shape.num_aux:
        assert proposer.aux_layer_ids == {None: (2, 4, 5), "eagle_config": (2, 4, 7)}.get(
            layout.aux_place, layout.aux_ids
        )
    session = EagleSession(proposer, make_reference(shape, tensors))
    whole_life(session, proposer.config.num_speculative_tokens)
    assert session.num_compared > 50
