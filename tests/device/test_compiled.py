"""Kernels are compiled and passes recorded at load: none while requests of any number, length and parameters are served."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pretend import PretendDevice
from pretend.requests import METHODS as USUAL

from specdec import LLM, SamplingParams

OPTIONS = {
    "max_model_len": 600, "max_num_seqs": 12, "max_num_batched_tokens": 160, "num_gpu_blocks_override": 900,
    "enable_prefix_caching": True,
}  # fmt: skip
METHODS = USUAL | {
    "wide": {"method": "ngram", "num_speculative_tokens": 40},
    "wide tree": {
        "method": "eagle3",
        "model": "zoo",
        "num_speculative_tokens": 12,
        "tree_top_k": 2,
        "tree_depth": 6,
    },
}
PARAMS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 7},
    {"temperature": 0.8, "min_p": 0.1, "logprobs": 4},
    {"temperature": 0.9, "min_p": 0.1, "top_k": 9, "top_p": 0.8, "frequency_penalty": 0.3},
    {"temperature": 0.0, "logprobs": 1, "repetition_penalty": 1.1},
)
WAVES = ((1, 3), (1, 500), (2, 40), (5, 200), (12, 60), (10, 5))
"""Requests that come together, and the most tokens of their prompts."""


@pytest.fixture(scope="module")
def expected() -> None:
    """Nothing: tokens are compared elsewhere."""


SERVED = [
    pytest.param("plain", {"dtype": "bfloat16"}, id="plain bfloat16"),
    pytest.param("plain", {"dtype": "float32", "max_num_seqs": 1}, marks=pytest.mark.full, id="plain alone"),
    pytest.param("ngram", {"dtype": "float32"}, id="ngram"),
    pytest.param(
        "ngram",
        {"dtype": "bfloat16", "deterministic": True},
        marks=pytest.mark.full,
        id="ngram deterministic",
    ),
    pytest.param("wide", {"dtype": "float32"}, marks=pytest.mark.slow, id="wide"),
    pytest.param("wide tree", {"dtype": "float32"}, marks=pytest.mark.full, id="wide tree"),
    pytest.param("eagle3-tree", {"dtype": "float32"}, marks=pytest.mark.slow, id="eagle3-tree"),
    *(
        pytest.param(m, {"dtype": "float32"}, marks=pytest.mark.full, id=m)
        for m in ("self", "eagle3", "draft_model")
    ),
]


@pytest.mark.parametrize(("method", "options"), SERVED)
@pytest.mark.sampled(1, slow=1)
def test_nothing_is_compiled_or_recorded_while_serving(
    method: str, options: dict[str, Any], device: PretendDevice
) -> None:
    device.forget_compiled()
    config = METHODS[method]
    speculative = config and config | {"adaptive": False}
    llm = LLM("zoo", device="cuda:0", speculative_config=speculative, **(OPTIONS | options))
    assert device.counted().compilations > 0
    generator = random.Random(0)
    for count, longest in WAVES:
        prompts = [
            {"prompt_token_ids": [generator.randrange(40, 60) for _ in range(generator.randint(1, longest))]}
            for _ in range(count)
        ]
        params = [
            SamplingParams(
                seed=row, max_tokens=generator.randint(2, 9), ignore_eos=True, **generator.choice(PARAMS)
            )
            for row in range(count)
        ]
        llm.generate(prompts, params, use_tqdm=False)
        asked = device.counted()
        assert (asked.compilations, asked.recordings) == (0, 0), asked.listed("compilations", "recordings")
    llm.shutdown()
