"""An assistant reads the cache of a target on the pretend device, and is as right as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtp_check.assistants import Pair
from mtp_check.cycles import circle, make_circle, read_rows

from specdec import LLM, RequestOutput, SamplingParams

pytestmark = pytest.mark.slow

PROMPTS = [circle(start, length) for start, length in ((0, 30), (3, 40), (7, 26), (3, 40))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder: Path = tmp_path_factory.mktemp("circle")
    return read_rows(make_circle(folder), "sliding_attention")


@pytest.fixture(scope="module")
def expected(pair) -> tuple[list[list[int]], int, int]:
    return ask(pair, "cpu")


def ask(pair: Pair, device: str) -> tuple[list[list[int]], int, int]:
    """Return the texts, and how many tokens were drafted and accepted."""
    config = {"model": str(pair.assistant), "num_speculative_tokens": 3, "adaptive": False}
    known = {"dtype": "float32", "skip_tokenizer_init": True, "max_model_len": 128, "max_num_seqs": 3}
    llm = LLM(
        model=str(pair.target),
        device=device,
        num_gpu_blocks_override=40,
        speculative_config=config | {"on_proposer_error": "raise"},
        **known,
    )
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    outputs: list[RequestOutput] = llm.generate([{"prompt_token_ids": ids} for ids in PROMPTS], params)
    metrics = llm._built.engine.metrics
    llm.shutdown()
    texts = [list(output.outputs[0].token_ids) for output in outputs]
    return texts, metrics.num_draft_tokens, metrics.num_accepted_tokens


def test_drafts_are_those_of_the_cpu(device, pair, expected) -> None:
    texts, drafted, accepted = ask(pair, "cuda:0")
    assert texts == expected[0] == [circle(ids[-1] + 1, 30) for ids in PROMPTS]
    assert drafted == accepted > 60
    assert (drafted, accepted) == expected[1:]
