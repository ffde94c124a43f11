"""The device path on a pretend device: tokens and log probabilities are the CPU's, and what a step asks of it is counted.

The numbers in `counts.json` are what a settled step may ask for: the median of the second half of the steps of a generation
after which all requests still run, but the last of them. A change may lower them and never raises them; those of samplers that
compare p and q are torch's operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pretend import Counts, PretendDevice, heads
from pretend.heads import NAMES as HEADS
from pretend.requests import METHODS, PARAMS, params, text_ids

from specdec import LLM, RequestOutput, SamplingParams

HELD = json.loads((Path(__file__).parent / "counts.json").read_text())
"""By method, parameters and number of requests, 1, 3, 8 and 64, or for all of them: the numbers of `LIMITED`, in this order."""
LIMITED = ("synchronisations", "launches", "copies_in", "copies_out")
MOST_LAUNCHES = 10
"""Of one step that verifies by `strict`, beside recorded passes and loops, whatever is held."""
SIZES = (1, 3, 8)
LARGE = 64
NUM_TOKENS = 18
MORE_TOKENS = 12
"""More of methods with few steps, or whose next draft begins ahead: the first step that does so launches two of them."""
SETTLED = 3
"""Steps for the prompts, the first draft, and the first one whose verdict has a place."""
OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 128, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip
DRAWN = {
    f"{method}-{sampler}": (METHODS[method] or {}) | {"rejection_sample_method": sampler}
    for method in ("draft_model", "eagle3")
    for sampler in ("probabilistic", "block")
}
"""Where p and q are compared: texts are those of the same sampler on the CPU, whose noise is the same."""
LONGER = ("draft_model", "eagle3", "eagle3-tree", "mtp", "eagle", "recycling", "composite", *HEADS, *DRAWN)
MORE = {
    "eagle": {"method": "eagle", "model": "zoo", "num_speculative_tokens": 3},
    "recycling": {"method": "recycling", "num_speculative_tokens": 6},
    "composite": {
        "method": "composite",
        "policy": "cascade",
        "proposers": [
            {"method": "suffix", "num_speculative_tokens": 3},
            {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
        ],
    },
    "ngram_gpu": {"method": "ngram_gpu", "num_speculative_tokens": 3},
}
"""Methods that only this file serves."""
RARELY = (
    "mtp", "self", "recycling", "draft_model-probabilistic", "eagle3-probabilistic", "eagle3-block", "composite", "parallel",
)  # fmt: skip
"""Methods that only the slow tests serve."""
SELDOM = ("ngram", "suffix", "eagle", "medusa", "draft_model-block")
"""Methods whose steps are those of others, which only the full tests serve."""
LARGE_OPTIONS = {"max_num_seqs": LARGE, "max_num_batched_tokens": 512, "num_gpu_blocks_override": 1600}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Prompts of different lengths, as many as the largest batch has."""
    ids = text_ids()
    return [ids[row % 4 :] for row in range(LARGE)]


def answered(
    prompts: list[list[int]], names: Iterable[str] = PARAMS, **keys: Any
) -> dict[str, list[RequestOutput]]:
    """Return the answers of an engine on the CPU, by the name of the parameters."""
    llm = made(device="cpu", **keys)
    most = NUM_TOKENS + MORE_TOKENS
    outputs = {name: llm.generate(prompts, params(name, len(prompts), most)) for name in names}
    llm.shutdown()
    return outputs


@pytest.fixture(scope="module")
def expected(prompts) -> dict[str, list[RequestOutput]]:
    """What plain decoding on the CPU answers, which a method changes as little as the rest of a batch does."""
    return answered(prompts[: SIZES[-1]])


@pytest.fixture(scope="module")
def large(prompts) -> Callable[[str], list[RequestOutput]]:
    """The same for a large batch, by the name of the parameters."""
    return cache(lambda name: answered(prompts, [name])[name])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(m, marks=[pytest.mark.slow] * (m in RARELY) + [pytest.mark.full] * (m in SELDOM))
        for m in [*METHODS, *MORE, *HEADS, *DRAWN]
    ],
)
def served(
    request, device, prompts, expected, tmp_path_factory
) -> Iterator[tuple[str, LLM, dict[str, list[RequestOutput]]]]:
    if request.param in HEADS:
        MORE[request.param] = heads.make(request.param, tmp_path_factory.mktemp(request.param))
    device.forget_compiled()
    llm = made(request.param)
    device.counted()
    if request.param in DRAWN:
        llm.generate(prompts[:1], params("sampled", 1))  # which checks the map of a reduced vocabulary once
        first = device.counted()
        assert not first.compilations, "a kernel was compiled after load: " + first.listed("compilations")
        expected = answered(prompts[: SIZES[-1]], method=request.param)
    yield request.param, llm, expected
    llm.shutdown()


def made(method: str = "plain", **options: int | str) -> LLM:
    config = (METHODS | MORE | DRAWN)[method]
    fixed = None if config is None else config | {"on_proposer_error": "raise", "adaptive": False}
    llm = LLM("zoo", speculative_config=fixed, **({"device": "cuda:0"} | OPTIONS | options))
    llm._built.engine._ahead._late = None  # who drafts on the host is asked in time, whatever is faster here
    return llm


def counted(llm: LLM, device: PretendDevice, prompts: list[list[int]], params: list[SamplingParams]):
    """Return the outputs of a generation, what each of its steps asked for, and those after which all requests still run."""
    engine, steps, whole = llm._built.engine, list[Counts](), list[Counts]()
    step = type(engine).step

    def counting() -> list[RequestOutput]:
        device.counted()
        outputs = step(engine)
        steps.append(device.counted())
        if engine.num_sequences == (len(prompts), 0):
            whole.append(steps[-1])
        return outputs

    engine.step = counting
    try:
        return llm.generate(prompts, params), steps, whole
    finally:
        del engine.step


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.sampled(3, slow=5)
def test_a_generation(name: str, size: int, served, device, prompts) -> None:
    method, llm, expected = served
    given = params(name, SIZES[-1], NUM_TOKENS + MORE_TOKENS * (method in LONGER))[:size]
    check_generation(llm, method, device, prompts[:size], name, expected[name][:size], given)


@pytest.mark.parametrize(
    ("method", "names"),
    [
        pytest.param("eagle3", ["greedy"], marks=pytest.mark.slow, id="eagle3 greedy"),
        *(pytest.param(m, PARAMS, marks=pytest.mark.full, id=m) for m in (*METHODS, *MORE, *HEADS)),
    ],
)
def test_a_large_batch(method: str, names: Iterable[str], device, large, prompts, tmp_path) -> None:
    if method in HEADS:
        MORE[method] = heads.make(method, tmp_path)
    llm = made(method, **LARGE_OPTIONS)
    for name in names:
        given = params(name, LARGE, NUM_TOKENS + MORE_TOKENS * (method in LONGER))
        check_generation(llm, method, device, prompts, name, large(name), given)
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
    for output, wanted in zip(outputs, expected, strict=True):
        (got,), (own,) = output.outputs, wanted.outputs
        count = params[0].max_tokens
        assert got.token_ids == own.token_ids[:count]
        if own.logprobs is not None:
            for ours, theirs in zip(got.logprobs, own.logprobs[:count], strict=True):
                assert list(ours) == list(theirs)
                assert [p.rank for p in ours.values()] == [p.rank for p in theirs.values()]
                assert [p.logprob for p in ours.values()] == pytest.approx(
                    [p.logprob for p in theirs.values()], abs=1e-3
                )
    assert sum(step.recordings for step in steps) == 0, "a graph was captured after load"
    compiled = [step.listed("compilations") for step in steps if step.compilations]
    assert not compiled, "a kernel was compiled after load: " + compiled[0]
    assert max(step.synchronisations for step in steps) == 1, "the host waits once in every step"
    if method != "plain":
        assert sum(output.metrics.num_draft_tokens for output in outputs) > 0
    later = slice(
        max(SETTLED, len(whole) // 2) - 1, -2
    )  # a call launches the step after the one that it returns
    check_counts(whole[later], method, name, len(prompts))


def check_counts(later: list[Counts], method: str, name: str, size: int) -> None:
    """Check that steps ask for no more than `HELD` allows."""
    settled = [median(getattr(step, kind) for step in later) for kind in LIMITED]
    print(f"\ncounts: {method} {name} {size} {settled}")  # pytest -rP shows it
    held = HELD[method][name]
    most = held[min((*SIZES, LARGE).index(size), len(held) - 1)]
    typical = min(later, key=lambda step: abs(step.launches - settled[1]))
    if method not in DRAWN:
        assert typical.launches - typical.replays <= MOST_LAUNCHES, typical.listed("launches")
    for kind, got, held in zip(LIMITED, settled, most, strict=True):
        assert got <= held, f"{kind} of a step: {settled}, held are {most}\n{typical.listed(kind)}"
