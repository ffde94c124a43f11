"""One model over two processes: the same tokens as one process, with and without drafts, on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from speccheck import ranks
from speccheck.models import prompts
from speccheck.saved import VOCAB, save_tiny

from specdec import LLM, SamplingParams

PROMPTS = prompts([3, 17, 30], seed=4, vocab=VOCAB)
GREEDY = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
PARAMS = [
    GREEDY,
    *({"temperature": 0.8, "seed": seed, "max_tokens": 8, "ignore_eos": True} for seed in (1, 2)),
]
RUN = {"prompts": PROMPTS, "params": PARAMS}


def job(model: Path, speculation: dict[str, Any] | None, *runs: dict[str, Any]) -> dict[str, Any]:
    arguments = {"model": str(model), "dtype": "float32", "max_model_len": 64, "tensor_parallel_size": 2}
    return {"arguments": arguments | {"speculative_config": speculation}, "runs": [RUN, *runs]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[int]]:
    outputs = LLM(str(model), dtype="float32", max_model_len=64).generate(
        PROMPTS, [SamplingParams(**params) for params in PARAMS]
    )
    return [output.outputs[0].token_ids for output in outputs]


def test_two_ranks_say_what_one_says_and_end_together(
    model: Path, expected: list[list[int]], tmp_path: Path
) -> None:
    texts = [prompt + text for prompt, text in zip(PROMPTS, expected, strict=True)]
    scripted = {
        "method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "shape": "tree", "wrong": 0.2,
        "texts": texts,
    }  # fmt: skip
    itself = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 3}
    other = {"prompts_by_rank": [[[1, 2]], [[1, 3]]], "params": [GREEDY]}
    jobs = [
        job(model, None),
        job(model, scripted),
        job(model, itself | {"draft_tensor_parallel_size": 1}),
        job(model, itself),
        job(model, None, other),
    ]
    done = ranks.wait(ranks.start(tmp_path, jobs, 2), timeout=200)

    for number in range(4):
        for rank in range(2):
            texts, (streamed, (num_accepted,)) = ranks.found(tmp_path, number, rank)
            assert texts == expected, f"job {number} on rank {rank}"
            assert streamed == expected[0][:3]
            assert (num_accepted > 6) == (number > 0)
    # In the last job the ranks ask for different texts: both end, with the same reason.
    for status, output in done:
        assert status == 1
        assert "rank 1: EngineError: was given another prompt" in output.splitlines()[-1]
