"""The heads as shipped: their plugins load them, they guess what the manifest says, and the text stays the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_train.heads.recipe import ZOO_HEADS

HEADS = [name for name in ZOO_HEADS if name in specdec_zoo.names()]
K = {"eagle": 4, "eagle3": 5, "mtp": 1, "mlp": 3}
PARAMS = SamplingParams(max_tokens=32, temperature=0.8, seed=5)


def facts(name: str) -> dict[str, Any]:
    found: dict[str, Any] = specdec_zoo.manifest()["artefacts"][name]
    return found


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return [prompt["prompt"] for prompt in specdec_zoo.prompts(8)]


@pytest.fixture(scope="module")
def plain(prompts: list[str]) -> list[list[int]]:
    llm = LLM(model="zoo", dtype="float32")
    return [output.outputs[0].token_ids for output in llm.generate(prompts, PARAMS, use_tqdm=False)]


def test_every_head_is_there() -> None:
    assert set(HEADS) == set(ZOO_HEADS)


@pytest.mark.parametrize("name", HEADS)
def test_weights_are_small_and_in_bfloat16(name: str) -> None:
    file = specdec_zoo.path(name) / "model.safetensors"
    with safe_open(file, "pt") as tensors:
        kinds = {str(tensors.get_tensor(key).dtype) for key in tensors.keys() if key not in ("d2t", "t2d")}  # noqa: SIM118  # no mapping
    assert kinds == {"torch.bfloat16"}
    assert file.stat().st_size < 14_000_000


@pytest.mark.parametrize("name", HEADS)
def test_text_is_the_targets_and_guesses_stand_about_as_often_as_recorded(
    name: str, prompts: list[str], plain: list[list[int]]
) -> None:
    llm = LLM(
        model="zoo",
        dtype="float32",
        speculative_config={"method": name, "model": "zoo", "num_speculative_tokens": K[name]},
    )
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == plain
    metrics = [output.metrics for output in outputs]
    drafts = sum(m.num_drafts for m in metrics if m is not None)
    first = sum(m.accepted_per_position[0] for m in metrics if m is not None and m.accepted_per_position)
    # Recorded is the mass in common at temperature 1 on all held-out files; here a few prompts at 0.8, coupled.
    assert first / drafts == pytest.approx(facts(name)["heldout"]["acceptance"][0]["sampled"], abs=0.2)
    assert first / drafts > 0.3


def test_the_readme_states_the_recorded_numbers() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for name in HEADS:
        assert f"{facts(name)['num_parameters']:,}" in readme
        assert (
            " / ".join(f"{place['sampled']:.2f}" for place in facts(name)["heldout"]["acceptance"]) in readme
        )
        assert facts(name)["command"] in readme


def test_the_drafts_ids_of_eagle3_are_the_frequent_ones() -> None:
    with safe_open(specdec_zoo.path("eagle3") / "model.safetensors", "pt") as tensors:
        offsets, named = tensors.get_tensor("d2t"), tensors.get_tensor("t2d")
    ids = torch.arange(len(offsets)) + offsets
    assert torch.equal(ids, named.nonzero().flatten())
    assert len(ids) == ZOO_HEADS["eagle3"].draft_vocab_size
