"""Samplers that compare p and q, on a pretend device: tokens are those of the same sampler on the CPU, and steps are counted.

Drafts and verification draw with the same noise there, so a q that is not the one a token was drawn from shows in the texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pretend import PretendDevice
from pretend.generations import OPTIONS, SIZES, check_outputs, check_steps, counted
from pretend.requests import METHODS, PARAMS, TEXT, params

from specdec import LLM, RequestOutput

HELD = json.loads((Path(__file__).parent / "counts.json").read_text())
DRAWN = {
    f"{method}-{sampler}": (METHODS[method] or {})
    | {"rejection_sample_method": sampler, "on_proposer_error": "raise", "adaptive": False}
    for method in ("draft_model", "eagle3")
    for sampler in ("probabilistic", "block")
}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Prompts of different lengths, as many as the largest batch has."""
    from transformers import AutoTokenizer

    import specdec_zoo

    ids = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(TEXT)["input_ids"]
    return [ids[row % 4 :] for row in range(SIZES[-1])]


@pytest.fixture(scope="module")
def expected(prompts) -> dict[str, dict[str, list[RequestOutput]]]:
    """What the CPU answers."""
    answers: dict[str, dict[str, list[RequestOutput]]] = {}
    for method, config in DRAWN.items():
        llm = LLM("zoo", device="cpu", speculative_config=config, **OPTIONS)
        answers[method] = {name: llm.generate(prompts, params(name)) for name in PARAMS}
        llm.shutdown()
    return answers


@pytest.fixture(scope="module", params=DRAWN)
def served(request, device, prompts) -> Iterator[tuple[str, LLM]]:
    llm = LLM("zoo", device="cuda:0", speculative_config=DRAWN[request.param], **OPTIONS)
    llm.generate(prompts[:1], params("sampled")[:1])  # the map of a reduced vocabulary is checked once
    yield request.param, llm
    llm.shutdown()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PARAMS)
def test_a_generation(name: str, size: int, served, device: PretendDevice, prompts, expected) -> None:
    method, llm = served
    outputs, steps, whole = counted(llm, device, prompts[:size], params(name)[:size])
    check_outputs(outputs, expected[method][name][:size])
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0
    check_steps(steps, whole, HELD[method][name][SIZES.index(size)], f"{method} {name} {size}")
