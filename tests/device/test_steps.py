"""The device path on a pretend device: tokens and log probabilities are the CPU's, and what a step asks of it is counted.

The numbers in `counts.json` are what a settled step may ask for: the median of the second half of the steps of a generation
after which all requests still run, but the last of them. A change may lower them and never raises them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pretend import PretendDevice
from pretend.generations import OPTIONS, SIZES, check_outputs, check_steps, counted
from pretend.requests import METHODS, PARAMS, TEXT, params

from specdec import LLM, RequestOutput, SamplingParams

HELD = json.loads((Path(__file__).parent / "counts.json").read_text())
"""By method, parameters and number of requests, 1, 3, 8 and 64: the numbers of `LIMITED`, in this order."""
LARGE = 64
LARGE_TOKENS = 18
ALWAYS_LARGE = ("plain", "eagle3")
"""Methods that every run of the tests serves to a large batch."""
LARGE_OPTIONS = {"max_num_seqs": LARGE, "max_num_batched_tokens": 2048, "num_gpu_blocks_override": 1600}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Prompts of different lengths, as many as the largest batch has."""
    from transformers import AutoTokenizer

    import specdec_zoo

    ids = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(TEXT)["input_ids"]
    return [ids[row % 4 :] for row in range(LARGE)]


@pytest.fixture(scope="module")
def expected(prompts) -> dict[str, list[RequestOutput]]:
    """What plain decoding on the CPU answers, which a method changes as little as the rest of a batch does."""
    llm = LLM("zoo", device="cpu", **OPTIONS)
    outputs = {name: llm.generate(prompts[: SIZES[-1]], params(name)) for name in PARAMS}
    outputs |= {f"large {name}": llm.generate(prompts, params(name, LARGE, LARGE_TOKENS)) for name in PARAMS}
    llm.shutdown()
    return outputs


@pytest.fixture(scope="module", params=METHODS)
def served(request, device) -> Iterator[tuple[str, LLM]]:
    llm = made(request.param)
    yield request.param, llm
    llm.shutdown()


def made(method: str, **options: int) -> LLM:
    config = METHODS[method]
    fixed = None if config is None else config | {"on_proposer_error": "raise", "adaptive": False}
    return LLM("zoo", device="cuda:0", speculative_config=fixed, **(OPTIONS | options))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PARAMS)
def test_a_generation(name: str, size: int, served, device, prompts, expected) -> None:
    method, llm = served
    check_generation(llm, method, device, prompts[:size], name, expected[name][:size], params(name)[:size])


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=() if m in ALWAYS_LARGE else pytest.mark.full) for m in METHODS]
)
def test_a_large_batch(method: str, device, prompts, expected) -> None:
    llm = made(method, **LARGE_OPTIONS)
    for name in PARAMS:
        wanted = expected[f"large {name}"]
        check_generation(llm, method, device, prompts, name, wanted, params(name, LARGE, LARGE_TOKENS))
    llm.shutdown()


def check_generation(
    llm: LLM,
    method: str,
    device: PretendDevice,
    prompts: list[list[int]],
    name: str,
    expected: list[RequestOutput],
    params: list[SamplingParams],
) -> None:
    """Check the tokens and log probabilities of a generation, and what its steps ask for."""
    outputs, steps, whole = counted(llm, device, prompts, params)
    check_outputs(outputs, expected)
    if method != "plain":
        assert sum(output.metrics.num_draft_tokens for output in outputs) > 0
    most = HELD[method][name][(*SIZES, LARGE).index(len(prompts))]
    check_steps(steps, whole, most, f"{method} {name} {len(prompts)}")
