"""Generations on the pretend device: what their steps ask of it, and that they answer what the CPU answers."""

from __future__ import annotations

from statistics import median

import pytest

from pretend.counts import Counts
from pretend.device import PretendDevice
from specdec import LLM, RequestOutput, SamplingParams

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip
SIZES = (1, 3, 8)
"""Numbers of requests."""
LIMITED = ("synchronisations", "launches", "copies_in", "copies_out")
"""Numbers that are held."""
SETTLED = 3
"""Steps for the prompts, the first draft, and the first one whose verdict has a place."""


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


def check_outputs(outputs: list[RequestOutput], expected: list[RequestOutput]) -> None:
    """Check tokens and log probabilities."""
    for output, wanted in zip(outputs, expected, strict=True):
        (got,), (own,) = output.outputs, wanted.outputs
        assert got.token_ids == own.token_ids
        if own.logprobs is not None:
            for ours, theirs in zip(got.logprobs, own.logprobs, strict=True):
                assert list(ours) == list(theirs)
                assert [p.rank for p in ours.values()] == [p.rank for p in theirs.values()]
                assert [p.logprob for p in ours.values()] == pytest.approx(
                    [p.logprob for p in theirs.values()], abs=1e-3
                )


def check_steps(steps: list[Counts], whole: list[Counts], most: list[int], what: str) -> None:
    """Check that no step waits twice or captures a graph, and that settled ones ask for no more than `most` of `LIMITED`.

    Args:
        steps: all of a generation.
        whole: those after which all requests still run.
        most: the numbers.
        what: names the generation.
    """
    assert sum(step.recordings for step in steps) == 0, "a graph was captured after load"
    assert max(step.synchronisations for step in steps) == 1, "the host waits once in every step"
    # A call launches the step after the one that it returns.
    later = whole[max(SETTLED, len(whole) // 2) - 1 : -2]
    settled = [median(getattr(step, kind) for step in later) for kind in LIMITED]
    print(f"\ncounts: {what} {settled}")  # pytest -rP shows it
    typical = min(later, key=lambda step: abs(step.launches - settled[1]))
    for kind, got, held in zip(LIMITED, settled, most, strict=True):
        assert got <= held, f"{kind} of a step: {settled}, held are {most}\n{typical.listed(kind)}"
