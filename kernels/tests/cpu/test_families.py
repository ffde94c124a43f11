"""Families whose layers are described, in compiled passes and as fused layers, against their own forward."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from speccheck.models import CONFIGS, MAX_LEN, MORE_CONFIGS, VOCAB, WINDOW, prompts, tiny

from specdec_kernels.cpu.form import CompiledForm
from specdec_kernels.layers.form import LayersForm
from specdec_kernels.layers.parts import ModelParts
from specdec_kernels.layers.structure import model_parts
from specdec_runtime.interfaces import ForwardOutput, PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

CPU = torch.device("cpu")
COMPILED = (
    "llama", "llama_yarn", "llama_biased", "qwen2_window", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "gemma4",
    "phi3", "glm", "glm4", "olmo2", "olmo3", "granite", "smollm3", "seed_oss", "helium", "ernie4_5",
    "exaone4", "cohere", "cohere2",
)  # fmt: skip
OTHERS = {
    "starcoder2": "and feed forward by c_fc, c_proj",
    "arcee": "and feed forward by up_proj, down_proj",
    "apertus": "its layers are made of self_attn, mlp, attention_layernorm, feedforward_layernorm",
    "hunyuan": "its layers attend by q_proj, k_proj, v_proj, o_proj, query_layernorm, key_layernorm",
    "olmo": "OlmoLayerNorm is a norm of another kind",
    "ministral3": "its outputs are",  # its queries are scaled by position, which its parts do not show
    "mixtral": "and feed forward by gate, experts",
    "gpt2": "it is made of wte, wpe",
}
PARENTS = (-1, -1, 0, 0, 1)


def runner_of(name: str) -> ModuleRunner:
    runner = ModuleRunner(tiny(name), CPU, MAX_LEN)
    runner.capture_hidden((0, 1, 2))
    return runner


def text_pass(ids: list[int], start: int, first_slot: int = 0) -> PackedBatch:
    """The rest of a text, from a token on."""
    places = torch.arange(start, len(ids))
    segment = Segment(0, len(places), first_slot, start)
    return PackedBatch(torch.tensor(ids[start:]), places, [segment], places + first_slot, None)


def tree_pass(ids: list[int], start: int, first_slot: int = 0) -> PackedBatch:
    """A token of a text and a tree of five nodes behind it."""
    mask, depths = torch.eye(6, dtype=torch.bool), torch.zeros(6, dtype=torch.int64)
    mask[:, 0] = True
    for node, parent in enumerate(PARENTS):
        mask[node + 1] |= mask[parent + 1]
        depths[node + 1] = depths[parent + 1] + 1
    segment = Segment(0, 6, first_slot, start, mask, depths)
    tokens = torch.tensor([ids[start], *((7 * node + 3) % VOCAB for node in range(5))])
    return PackedBatch(tokens, start + depths, [segment], torch.arange(start, start + 6) + first_slot, None)


def outputs(runner: ModuleRunner, form: int) -> list[ForwardOutput]:
    """Run a prompt longer than any window in chunks, single tokens and a tree, on a cache of its own."""
    runner.allocate(2 * MAX_LEN)
    for tensor in (*runner.cache.keys.values(), *runner.cache.values.values()):
        tensor.fill_(float("nan"))
    (ids,) = prompts([3 * WINDOW], seed=3)
    first_slot = 32
    passes = [
        text_pass(ids[: WINDOW + 5], 0, first_slot),
        text_pass(ids[: 2 * WINDOW + 9], WINDOW + 5, first_slot),
    ]
    passes += [text_pass(ids[: end + 1], end, first_slot) for end in range(2 * WINDOW + 9, 2 * WINDOW + 12)]
    passes.append(tree_pass(ids, 2 * WINDOW + 12, first_slot))
    with torch.inference_mode():
        return [runner.forms[0][form].forward(batch, None) for batch in passes]


@pytest.mark.parametrize("name", COMPILED)
def test_both_forms_equal_the_models_own_forward(name: str) -> None:
    runner = runner_of(name)
    assert [type(form) for form in runner.forms[0][:-1]] == [CompiledForm, LayersForm]
    own = outputs(runner, -1)
    assert (own[0].logits.max() - own[0].logits.min()) > 1.0
    for form in (0, 1):
        for got, expected in zip(outputs(runner, form), own, strict=True):
            torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-4)
            assert got.hidden_states is not None
            torch.testing.assert_close(got.hidden_states, expected.hidden_states, rtol=1e-4, atol=1e-4)
            for ours, theirs in zip(got.aux_hidden_states, expected.aux_hidden_states, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_other_families_run_their_own_forward_and_say_why(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        runner = ModuleRunner(tiny(name), CPU, MAX_LEN)
    assert len(runner.forms[0]) == 1
    assert runner.counts()["unfused_models"] == 1
    (message,) = [record.message for record in caplog.records if record.name == "specdec"]
    assert "no fused form (cpu: " in message
    assert OTHERS[name] in message


def listed() -> dict[str, str]:
    """How each `model_type` runs, as the table of families says."""
    text = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text(encoding="utf-8")
    table = text.split("## Families")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", table, re.MULTILINE))
    del rows["model_type"]  # the header
    return rows


def test_the_table_of_families_is_true() -> None:
    runs = listed()
    configs = CONFIGS | MORE_CONFIGS
    assert set(runs) == {config().model_type for config in configs.values()}
    for name, config in configs.items():
        if name == "ministral3":  # found at load only, see `OTHERS`
            continue
        parts = model_parts(tiny(name), defaultdict(lambda: None))
        assert isinstance(parts, ModelParts) == (runs[config().model_type] == "compiled"), (name, parts)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gemma2", ("attn_logit_softcapping", None)),
        ("gemma3", ("embed_tokens.embed_scale", 1.0)),
        ("granite", ("layers.1.residual_multiplier", 1.0)),
        ("gemma4", ("layers.0.layer_scalar", 2.0)),
    ],
)
def test_what_a_description_says_changes_the_logits(name: str, change: tuple[str, object]) -> None:
    """Each of these would be refused by the check at load if a form did not compute it."""
    key, value = change
    before = outputs(ModuleRunner(tiny(name), CPU, MAX_LEN), 0)
    model = tiny(name)
    *path, last = key.split(".")
    owners = [model.base_model.get_submodule(".".join(path))]
    if not path:
        owners = [layer.self_attn for layer in model.base_model.layers]
    for owner in owners:
        current = getattr(owner, last)
        setattr(owner, last, torch.full_like(current, value) if isinstance(current, torch.Tensor) else value)
    runner = ModuleRunner(model, CPU, MAX_LEN)
    assert isinstance(runner.forms[0][0], CompiledForm)
    after = outputs(runner, 0)
    assert not torch.allclose(before[-1].logits, after[-1].logits, rtol=1e-3, atol=1e-3)
