"""The heads as shipped: their plugins load them, they guess what the manifest says, and the text stays the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from zoo_recipe.draft_run import load_artefact

import specdec_zoo
from specdec import LLM, RequestOutput, SamplingParams
from specdec_train.heads.recipe import ZOO_HEADS
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.states import StateReader

HEADS = [name for name in ZOO_HEADS if name in specdec_zoo.names()]
K = {"eagle": 4, "eagle3": 5, "mtp": 1}
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


def make_llm(name: str, **keys: Any) -> LLM:
    config = {"method": name, "model": "zoo", "num_speculative_tokens": K[name]}
    return LLM(model="zoo", dtype="float32", speculative_config=config | keys)


def first_stands(outputs: list[RequestOutput]) -> float:
    """How often the first token of a draft stands."""
    metrics = [output.metrics for output in outputs if output.metrics is not None]
    assert len(metrics) == len(outputs)
    first = sum(m.accepted_per_position[0] for m in metrics if m.accepted_per_position)
    return first / sum(m.num_drafts for m in metrics)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.sampled(1, slow=1)
def test_text_is_the_targets(name: str, prompts: list[str], plain: list[list[int]]) -> None:
    llm = make_llm(name)
    proposer, calls = llm._built.engine.proposer, []
    inner = proposer._runner.draft_after
    proposer._runner.draft_after = lambda *given: calls.append(given) or inner(*given)
    llm.generate(prompts[:1], PARAMS, use_tqdm=False)
    # Most steps of few requests take in what is new and draft in one compiled call.
    assert len(calls) > llm._built.engine.metrics.num_drafts / 2
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == plain
    assert first_stands(outputs) > 0.3


def objective_of(llm: LLM) -> RecurrentObjective:
    proposer = llm._built.engine.proposer
    reader = StateReader(load_artefact(specdec_zoo.path()), proposer.aux_layer_ids)
    return RecurrentObjective(proposer._head, reader, num_steps=1, decay=1.0, regression=0.0)


@torch.no_grad()
def in_common(objective: RecurrentObjective, output: RequestOutput) -> tuple[torch.Tensor, torch.Tensor]:
    """What first guesses have in common with the target's law, as training sees it: along a prompt, and along its output."""
    num_prompt = len(output.prompt_token_ids)
    ids = torch.tensor([*output.prompt_token_ids, *output.outputs[0].token_ids])[None]
    guess = next(iter(objective.guesses(ids, is_whole=True)))
    law, wanted = torch.softmax(guess.logits, -1), torch.softmax(guess.wanted, -1)
    named = objective._head.target_ids
    shared = torch.minimum(law, wanted if named is None else wanted[:, named]).sum(-1)
    return shared[: num_prompt - 1], shared[num_prompt - 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_guesses_stand_as_often_as_recorded(name: str) -> None:
    """At temperature 1 rejection sampling accepts the mass in common, which is what the record says of held-out text."""
    llm = make_llm(name, rejection_sample_method="probabilistic", num_speculative_tokens=1)
    texts = [prompt["prompt"] for prompt in specdec_zoo.prompts(32)]
    params = SamplingParams(max_tokens=64, temperature=1.0, seed=5, ignore_eos=True)
    outputs = llm.generate(texts, params, use_tqdm=False)
    objective = objective_of(llm)
    parts = [in_common(objective, output) for output in outputs]
    recorded = facts(name)["heldout"]["acceptance"][0]["sampled"]
    assert torch.cat([prompt for prompt, _ in parts]).mean().item() == pytest.approx(recorded, abs=0.04)
    # A guess that stands takes the draft behind it along, so that a draft begins at a place once in 1 + chance.
    chances = torch.cat([output for _, output in parts])
    expected = (chances / (1 + chances)).sum() / (1 / (1 + chances)).sum()
    assert first_stands(outputs) == pytest.approx(expected.item(), abs=0.04)


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
