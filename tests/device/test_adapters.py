"""Requests with adapters on the pretend device: tokens are the CPU's, and passes without adapters stay recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pretend.requests import METHODS, params, text_ids
from speccheck.adapters import make_adapters

from specdec import LLM, RequestOutput

pytestmark = pytest.mark.slow

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 96, "num_gpu_blocks_override": 400,
}  # fmt: skip
NUM_TOKENS = 10
NAMES = [None, "attention", "all", "head"]
SERVED = ("plain", "ngram", "eagle3", "eagle3-tree", "self")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folders: dict[str, Path] = make_adapters(tmp_path_factory.mktemp("adapters"))
    return {name: str(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return [text_ids()[row:] for row in range(len(NAMES))]


@pytest.fixture(scope="module")
def expected(prompts, modules) -> list[list[RequestOutput]]:
    """Answers of the CPU to all with their adapters, and to all without one."""
    llm = LLM("zoo", device="cpu", lora_modules=modules, **OPTIONS)
    outputs = [
        llm.generate(prompts, params("sampled", len(NAMES), NUM_TOKENS), lora_request=names)
        for names in (NAMES, None)
    ]
    llm.shutdown()
    return outputs


def value(llm: LLM, name: str) -> int:
    return next((metric.value for metric in llm.get_metrics() if metric.name == f"specdec:{name}"), 0)


@pytest.mark.parametrize("method", SERVED)
@pytest.mark.sampled(0, slow=1)
def test_tokens_are_the_cpus_and_other_passes_are_recorded(
    method: str, device, prompts, expected, modules
) -> None:
    config = METHODS[method]
    config = None if config is None else config | {"on_proposer_error": "raise", "adaptive": False}
    llm = LLM("zoo", device="cuda:0", speculative_config=config, lora_modules=modules, **OPTIONS)
    for names, wanted, recorded in (
        (None, expected[1], True),
        (NAMES, expected[0], False),
        (NAMES, expected[0], False),
        (None, expected[1], True),
    ):
        before = value(llm, "graph_replays"), value(llm, "adapter_passes")
        outputs = llm.generate(prompts, params("sampled", len(NAMES), NUM_TOKENS), lora_request=names)
        assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in wanted]
        assert (value(llm, "adapter_passes") > before[1]) == (names is not None)
        if recorded:
            assert value(llm, "graph_replays") > before[0]
    llm.shutdown()
