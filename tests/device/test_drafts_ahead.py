"""Steps with drafts that are launched before the host has the verdict on the last ones: texts, drafts, how many there are."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pretend import PretendDevice
from pretend.requests import METHODS, text_ids

from specdec import LLM, RequestOutput, SamplingParams
from specdec.engine import Step

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip
LIKE: dict[str, dict[str, Any]] = {
    **{name: METHODS[name] or {} for name in ("eagle3", "draft_model", "mtp", "eagle3-tree")},
    "eagle3-probabilistic": (METHODS["eagle3"] or {}) | {"rejection_sample_method": "probabilistic"},
    "draft_model-block": (METHODS["draft_model"] or {}) | {"rejection_sample_method": "block"},
    "ngram_gpu": {"method": "ngram_gpu", "num_speculative_tokens": 3},
}
HEATS = (0.0, 0.8)
LENGTHS, LENGTH = (40, 25, 33), 60
NUM_FIRST = 3
"""Steps with drafts before which nothing is known of the next one."""


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    ids = text_ids()
    return [ids[: len(ids) - 3 * row] for row in range(3)]


@pytest.fixture(scope="module")
def expected(prompts, request) -> dict[tuple[str, float], list[RequestOutput]]:
    """What the methods of the tests that run answer on the CPU."""
    own = [each for each in request.session.items if each.path == request.path]
    given = [each.callspec.params for each in own if hasattr(each, "callspec")]
    wanted = {(params.get("method"), params.get("temperature", 0.0)) for params in given}
    return {
        (method, temperature): served("cpu", method, prompts, [LENGTH] * 3, temperature)[0]
        for method, temperature in product(LIKE, HEATS)
        if (method, temperature) in wanted
    }


def made(where: str, method: str) -> LLM:
    config = LIKE[method] | {"adaptive": False, "on_proposer_error": "raise"}
    return LLM("zoo", device=where, speculative_config=config, **OPTIONS)


def served(
    where: str, method: str, prompts: list[list[int]], lengths: list[int], temperature: float, **params: Any
) -> tuple[list[RequestOutput], list[bool]]:
    """Return what `answered` does of an engine that is made for it."""
    llm = made(where, method)
    found = answered(llm, prompts, lengths, temperature, **params)
    llm.shutdown()
    return found


def answered(
    llm: LLM, prompts: list[list[int]], lengths: list[int], temperature: float, **params: Any
) -> tuple[list[RequestOutput], list[bool]]:
    """Return outputs, and which steps with drafts were launched before the host had the verdict on the last ones."""
    engine, steps = llm._built.engine, list[bool]()
    launch = type(engine)._launch

    def launching(step: Step) -> Step:
        is_ahead, launched = step.behind is not None, launch(engine, step)
        if any(row.num_nodes for row in launched.rows):
            steps.append(is_ahead)
        return launched

    engine._launch = launching
    given = [
        SamplingParams(temperature=temperature, seed=row, max_tokens=length, ignore_eos=True, **params)
        for row, length in enumerate(lengths)
    ]
    outputs = llm.generate(prompts, given)
    del engine._launch
    return outputs, steps


def check_same(ours: list[RequestOutput], theirs: list[RequestOutput]) -> None:
    for own, other in zip(ours, theirs, strict=False):
        assert own.outputs[0].token_ids == other.outputs[0].token_ids
        assert own.metrics.num_accepted_tokens == other.metrics.num_accepted_tokens


def level_of(method: str, temperature: float, size: int) -> list[pytest.MarkDecorator]:
    """Return marks by which temperatures and sizes are tested pairwise, and both of each other at the full level."""
    if (temperature > 0) == (size > 1):
        return [pytest.mark.full]
    return [] if method in ("eagle3", "eagle3-tree") and size > 1 else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("method", "temperature", "size"),
    [pytest.param(*each, marks=level_of(*each)) for each in product(LIKE, HEATS, (1, 3))],
)
@pytest.mark.sampled(1, slow=2)
def test_texts_and_drafts_are_those_of_the_cpu(
    method: str, temperature: float, size: int, device: PretendDevice, prompts, expected
) -> None:
    outputs, steps = served("cuda:0", method, prompts[:size], [LENGTH] * size, temperature)
    check_same(outputs, expected[method, temperature])
    print(f"\nahead: {method} {temperature} {size} {sum(steps)} of {len(steps)}")  # pytest -rP shows it
    assert len(steps) > 4 * NUM_FIRST
    assert all(steps[NUM_FIRST : len(steps) // 2]), "the last drafts end where texts do, and wait"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eagle3", "draft_model", "eagle3-tree"])
@pytest.mark.sampled(0, slow=1)
def test_texts_end_one_after_another(method: str, device: PretendDevice, prompts, expected) -> None:
    """By their lengths, and by tokens within drafts that the host has not read when the next step is launched."""
    llm, wanted = made("cuda:0", method), expected[method, 0.0]
    outputs, steps = answered(llm, prompts, [*LENGTHS], 0.0)
    for ours, theirs, length in zip(outputs, wanted, LENGTHS, strict=True):
        assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids[:length]
    assert sum(steps) > 0
    for place in (7, 20):
        stop = wanted[1].outputs[0].token_ids[place]
        outputs, _ = answered(llm, prompts, [LENGTH] * 3, 0.0, stop_token_ids=[stop])
        for ours, theirs in zip(outputs, wanted, strict=True):
            tokens = theirs.outputs[0].token_ids
            end = tokens.index(stop) + 1 if stop in tokens else LENGTH
            assert ours.outputs[0].token_ids == tokens[:end]
    llm.shutdown()


@pytest.mark.slow
def test_rules_of_the_host_wait(device: PretendDevice, prompts) -> None:
    params = {"repetition_penalty": 1.1}
    outputs, steps = served("cuda:0", "eagle3", prompts[:1], [20], 0.0, **params)
    wanted, _ = served("cpu", "eagle3", prompts[:1], [20], 0.0, **params)
    check_same(outputs, wanted)
    assert steps
    assert not any(steps)
