"""The device path on a pretend device: tokens and log probabilities are the CPU's, and what a step asks of it is counted.

The numbers in `counts.json` are what a settled step may ask for: the median of the second half of a generation. A change may
lower them and never raises them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from pretend import Counts, PretendDevice
from pretend.requests import METHODS, PARAMS, TEXT, params

from specdec import LLM, RequestOutput, SamplingParams

HELD = json.loads((Path(__file__).parent / "counts.json").read_text())
"""By method, parameters and number of requests: the numbers of `LIMITED`, in this order."""
LIMITED = ("synchronisations", "launches", "copies_in", "copies_out")
NOT_DRAFTING_ON_IT = ("plain", "ngram", "suffix")
"""Methods of which every pass is the target's."""
SIZES = (1, 3, 8)
LARGE = 64
LARGE_METHODS = ("plain", "eagle3")
OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip


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
    outputs["large"] = llm.generate(prompts, params("sampled", LARGE, 6))
    llm.shutdown()
    return outputs


@pytest.fixture(scope="module")
def device(expected) -> Iterator[PretendDevice]:
    with PretendDevice() as entered:
        yield entered


@pytest.fixture(scope="module", params=METHODS)
def served(request, device) -> Iterator[tuple[str, LLM]]:
    llm = made(request.param)
    yield request.param, llm
    llm.shutdown()


def made(method: str, **options: int) -> LLM:
    config = METHODS[method]
    fixed = None if config is None else config | {"on_proposer_error": "raise", "adaptive": False}
    return LLM("zoo", device="cuda:0", speculative_config=fixed, **(OPTIONS | options))


def counted(llm: LLM, device: PretendDevice, prompts: list[list[int]], params: list[SamplingParams]):
    """Return the outputs of a generation and what each of its steps asked for."""
    engine, steps = llm._built.engine, list[Counts]()
    step = type(engine).step

    def counting() -> list[RequestOutput]:
        device.counted()
        outputs = step(engine)
        steps.append(device.counted())
        return outputs

    engine.step = counting
    try:
        return llm.generate(prompts, params), steps
    finally:
        del engine.step


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PARAMS)
def test_a_generation(name: str, size: int, served, device, prompts, expected) -> None:
    method, llm = served
    outputs, steps = counted(llm, device, prompts[:size], params(name)[:size])
    for output, wanted in zip(outputs, expected[name][:size], strict=True):
        (got,), (own,) = output.outputs, wanted.outputs
        assert got.token_ids == own.token_ids
        if own.logprobs is not None:
            for ours, theirs in zip(got.logprobs, own.logprobs, strict=True):
                assert list(ours) == list(theirs)
                assert [p.rank for p in ours.values()] == [p.rank for p in theirs.values()]
                assert [p.logprob for p in ours.values()] == pytest.approx(
                    [p.logprob for p in theirs.values()], abs=1e-3
                )
    assert sum(step.recordings for step in steps) == 0, "a graph was captured after load"
    if method != "plain":
        assert sum(output.metrics.num_draft_tokens for output in outputs) > 0
    if method not in NOT_DRAFTING_ON_IT:
        steps = steps[:-1]  # the last one also delivers the last tokens
    check_counts(steps[len(steps) // 2 :], method, name, size)


@pytest.mark.parametrize("method", LARGE_METHODS)
def test_a_large_batch(method: str, device, prompts, expected) -> None:
    llm = made(method, max_num_seqs=LARGE, max_num_batched_tokens=2048)
    outputs, steps = counted(llm, device, prompts, params("sampled", LARGE, 6))
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in expected["large"]]
    assert sum(step.recordings for step in steps) == 0, "a graph was captured after load"
    check_counts(steps[2:-2], method, "sampled", LARGE)  # after the prompts, and before requests end
    llm.shutdown()


def check_counts(later: list[Counts], method: str, name: str, size: int) -> None:
    """Check that steps ask for no more than `HELD` allows."""
    settled = [median(getattr(step, kind) for step in later) for kind in LIMITED]
    print(f"\ncounts: {method} {name} {size} {settled}")  # pytest -rP shows it
    most = HELD[method][name][(*SIZES, LARGE).index(size)]
    typical = min(later, key=lambda step: abs(step.launches - settled[1]))
    for kind, got, held in zip(LIMITED, settled, most, strict=True):
        assert got <= held, f"{kind} of a step: {settled}, held are {most}\n{typical.listed(kind)}"
