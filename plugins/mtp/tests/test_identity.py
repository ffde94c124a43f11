"""The text is the target's, whatever its extra layers draft; and drafts that are right are accepted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
import torch
from mtp_check.targets import VOCAB_SIZE, agreeing

from specdec import LLM, ConfigError, SamplingParams

KINDS = ["llama", "deepseek_v3", "glm4_moe", "mimo", "ernie", "qwen3_next", "qwen3_5"]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"draft_sample_method": "greedy", "num_speculative_tokens": 3},
    "coupled": {"num_speculative_tokens": 3},
    "drawn": {"draft_sample_method": "probabilistic", "num_speculative_tokens": 3},
    "tree": {"num_speculative_tokens": 6, "tree_top_k": 2},
    "static tree": {"num_speculative_tokens": 4, "tree_choices": [[0], [1], [0, 0], [0, 1]]},
}


def run(folder: object, temperature: float, **config: Any) -> list[Any]:
    """Ask the engine of a configuration, which other temperatures share; prompts are too short for its prefix cache."""
    return ask(engine(str(folder), json.dumps(config)), temperature)


@cache
def engine(folder: str, config: str) -> LLM:
    return make_llm(folder, json.loads(config))


def run_twice(folder: object, **config: Any) -> tuple[list[Any], list[Any]]:
    llm = make_llm(folder, config, block_size=4)
    return ask(llm, 0.0), ask(llm, 0.0)


def make_llm(folder: object, config: dict[str, Any], **arguments: Any) -> LLM:
    keys = {"method": "mtp", "on_proposer_error": "raise", **config} if config else None
    known = {"dtype": "float32", "skip_tokenizer_init": True, "max_num_seqs": 3, "strict_drafts": True}
    return LLM(model=str(folder), speculative_config=keys, **known | arguments)


def ask(llm: LLM, temperature: float) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    prompts = [torch.randint(VOCAB_SIZE, (n,), generator=generator).tolist() for n in (9, 1, 2, 5)]
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=20, ignore_eos=True)
        for i in range(len(prompts))
    ]
    return llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)


def tokens(outputs: list[Any]) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in outputs]


@cache
def plain(folder: str, temperature: float) -> list[list[int]]:
    return tokens(run(folder, temperature))


def in_turn(names: Iterable[str]) -> list[Any]:
    """Names with both temperatures: one of them, in turn, at the default level, the other one is slow."""
    return [
        pytest.param(name, temperature, marks=() if (i + j) % 2 else pytest.mark.slow)
        for i, name in enumerate(names)
        for j, temperature in enumerate((0.0, 0.9))
    ]


@pytest.fixture(scope="module")
def half_right(made, tmp_path_factory):
    return {n: agreeing(made("llama", n), tmp_path_factory.mktemp("agreeing")) for n in (1, 2)}


@pytest.mark.parametrize(("kind", "temperature"), in_turn(KINDS))
@pytest.mark.sampled(2, slow=3)
def test_random_layers_change_nothing(made, kind, temperature):
    folder = str(made(kind).folder)
    assert tokens(run(folder, temperature, num_speculative_tokens=2)) == plain(folder, temperature)


@pytest.mark.filterwarnings("ignore:.*lowers acceptance")
@pytest.mark.parametrize(("way", "temperature"), in_turn(WAYS))
def test_text_is_that_of_plain_decoding(half_right, way, temperature):
    folder = str(half_right[1].folder)
    outputs = run(folder, temperature, **WAYS[way])
    assert tokens(outputs) == plain(folder, temperature)
    # The first token was prefill's; a head that is never right would take a step for each of the others.
    if way != "drawn" or temperature == 0.0:
        assert sum(output.metrics.num_accepted_tokens for output in outputs) > 20


@pytest.mark.parametrize(
    "way", [{"num_speculative_tokens": 4}, {"num_speculative_tokens": 6, "tree_top_k": 3}]
)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_two_layers(half_right, way, temperature):
    folder = str(half_right[2].folder)
    outputs = run(folder, temperature, **way)
    assert tokens(outputs) == plain(folder, temperature)
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 20


def test_two_layers_go_on_from_a_cached_prefix(half_right):
    """Of each stage the rows of the prefix are taken over, and what the stage behind it begins from."""
    config = {"num_speculative_tokens": 4, "adaptive": False, "draft_sample_method": "greedy"}
    first, second = run_twice(half_right[2].folder, **config)
    assert tokens(first) == tokens(second)
    assert [output.num_cached_tokens for output in second] == [8, 0, 0, 4]
    for before, after in zip(first, second, strict=True):
        assert after.metrics.accepted_per_position == before.metrics.accepted_per_position
        assert after.metrics.num_drafts == before.metrics.num_drafts


def test_a_sampler_that_uses_q(half_right):
    folder = str(half_right[1].folder)
    config = {"num_speculative_tokens": 3, "rejection_sample_method": "probabilistic"}
    assert tokens(run(folder, 0.0, **config)) == plain(folder, 0.0)
    assert tokens(run(folder, 0.9, **config)) == tokens(ask(make_llm(folder, config), 0.9))


@pytest.fixture(scope="module")
def recurrent(made, tmp_path_factory):
    """A target whose second layer keeps a recurrent state."""
    return agreeing(made("qwen3_5"), tmp_path_factory.mktemp("recurrent"))


@pytest.mark.parametrize(("way", "temperature"), in_turn(["greedy", "coupled", "drawn"]))
@pytest.mark.sampled(1, slow=2)
def test_a_target_with_recurrent_layers(recurrent, way, temperature):
    folder = str(recurrent.folder)
    outputs = run(folder, temperature, **WAYS[way])
    assert tokens(outputs) == plain(folder, temperature)
    if way != "drawn" or temperature == 0.0:
        assert sum(output.metrics.num_accepted_tokens for output in outputs) > 20


def test_recurrent_layers_go_on_from_a_cached_prefix(recurrent):
    """The target runs the last rows of a prefix again for their states, from the last one that it kept."""
    config = {"num_speculative_tokens": 3, "adaptive": False, "draft_sample_method": "greedy"}
    first, second = run_twice(recurrent.folder, **config)
    assert tokens(first) == tokens(second)
    assert [output.num_cached_tokens for output in second] == [8, 0, 0, 4]
    for before, after in zip(first, second, strict=True):
        assert after.metrics.accepted_per_position == before.metrics.accepted_per_position


@pytest.mark.slow
def test_recurrent_layers_are_preempted_and_aborted_in_the_middle_of_drafts(recurrent):
    """The cache holds little more than one request; then requests end early, and leave nothing behind."""
    config = {"num_speculative_tokens": 3, "adaptive": False, "draft_sample_method": "greedy"}
    small = {"block_size": 4, "max_model_len": 32, "num_gpu_blocks_override": 11}
    llm = make_llm(recurrent.folder, config, **small)
    expected = plain(str(recurrent.folder), 0.0)
    assert tokens(ask(llm, 0.0)) == expected
    metrics = llm._built.engine.metrics
    assert metrics.num_preemptions > 0
    for count in (2, 3, 4):
        drafted = metrics.num_draft_tokens
        stream = llm.stream(
            {"prompt_token_ids": [3, 1, 4, 1, 5]}, SamplingParams(temperature=0.0, max_tokens=20)
        )
        for _ in range(count):
            next(stream)
        stream.close()
        assert metrics.num_draft_tokens > drafted
        assert tokens(ask(llm, 0.0)) == expected


@pytest.mark.parametrize("way", ["tree", "static tree"])
def test_recurrent_layers_take_chains_only(recurrent, way):
    with pytest.raises(ConfigError, match="configure the method for chains"):
        run(recurrent.folder, 0.0, **WAYS[way])
