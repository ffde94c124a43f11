"""Requests with three adapters and without one in a batch: the tokens of PEFT's own models, with every kind of drafts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from speccheck.adapters import adapted_by_peft, make_adapters
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, AsyncLLM, ConfigError, LoRARequest, SamplingParams
from specdec.reference import generate

METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4},
    "suffix": {"method": "suffix", "num_speculative_tokens": 4},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4},
    "eagle3-tree": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 6, "tree_top_k": 2},
    "self": {"method": "self", "num_speculative_tokens": 3},
    "draft_model": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 4},
    "auto": {"method": "auto"},
}
ALWAYS = ("plain", "eagle3")
NAMES = ("attention", None, "all", "head")
TEXTS = (
    "def main(argv):\n    parser = ",
    "class Node:\n    def __init__(self, value):\n        self.value = value\n\n    def ",
    "import os\n\nfor name in os.listdir('.'):\n    print(name)\n\nfor name in ",
    "def test_sum(self):\n    self.assertEqual(1 + 1, 2)\n\ndef test_",
)
NUM_TOKENS = 14
PARAMS = [
    SamplingParams(temperature=temperature, seed=seed, max_tokens=NUM_TOKENS, ignore_eos=True)
    for seed, temperature in enumerate((0.0, 0.0, 0.8, 0.0))
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    return [tokenizer(text)["input_ids"] for text in TEXTS]


@pytest.fixture(scope="module")
def expected(folders, prompts) -> dict[str | None, list[list[int]]]:
    """For each adapter, and without one, the tokens of each prompt, by the reference loop on PEFT's model."""
    found = {}
    for name in NAMES:
        model = adapted_by_peft(None if name is None else folders[name])
        model = model if name is None else model.get_base_model()  # with the adapter's modules in it
        found[name] = [
            generate(model, prompt, lambda tokens, most: [], 0, params)
            for prompt, params in zip(prompts, PARAMS, strict=True)
        ]
    return found


def serving(folders: dict[str, Path], method: str = "plain", **arguments: Any) -> LLM:
    modules = {name: str(folder) for name, folder in folders.items()}
    options = {"dtype": "float32", "max_model_len": 256, "block_size": 4, "lora_modules": modules} | arguments
    return LLM("zoo", speculative_config=METHODS[method], **options)


def tokens(outputs) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_adapters_change_the_texts(expected) -> None:
    for texts in zip(*expected.values(), strict=True):
        assert len({tuple(text) for text in texts}) == len(NAMES)


def test_peft_generates_the_same_merged_or_not(folders, prompts, expected) -> None:
    for name, folder in folders.items():
        for is_merged in (False, True)[
            : 1 if name == "head" else 2
        ]:  # PEFT would change the tied embedding as well
            model = adapted_by_peft(folder)
            model = model.merge_and_unload() if is_merged else model
            ids = torch.tensor([prompts[0]])
            text = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NUM_TOKENS,
                min_new_tokens=NUM_TOKENS,
            )  # fmt: skip
            assert text[0, ids.shape[1] :].tolist() == expected[name][0]


@pytest.mark.parametrize(
    "method", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_a_batch_of_adapters_has_the_tokens_of_peft(folders, prompts, expected, method) -> None:
    llm = serving(folders, method)
    num_drafts = 0
    for turn in range(
        2 * len(NAMES)
    ):  # each prompt with every adapter, twice: the second time from the prefix cache
        names = [NAMES[(turn + place) % len(NAMES)] for place in range(len(NAMES))]
        outputs = llm.generate(prompts, PARAMS, lora_request=names)
        assert tokens(outputs) == [expected[name][place] for place, name in enumerate(names)]
        assert any(output.num_cached_tokens for output in outputs) == (turn >= len(NAMES))
        num_drafts += sum(output.metrics.num_drafts for output in outputs)
    assert num_drafts or method == "plain"


def test_passes_without_adapters_run_their_fast_form(folders, prompts, expected) -> None:
    llm = serving(folders)

    def num_passes() -> int:
        return next((m.value for m in llm.get_metrics() if m.name == "specdec:adapter_passes"), 0)

    assert tokens(llm.generate(prompts, PARAMS)) == expected[None]
    assert num_passes() == 0
    assert tokens(llm.generate(prompts, PARAMS, lora_request="all")) == expected["all"]
    assert num_passes() == PARAMS[0].max_tokens


def test_requests_bring_adapters_as_in_vllm(folders, prompts, expected) -> None:
    llm = LLM("zoo", dtype="float32", enable_lora=True, max_loras=4, max_cpu_loras=1)
    for number, name in enumerate(("all", "attention", "all"), 1):
        request = LoRARequest(name, number % 2 + 1, str(folders[name]))
        assert tokens(llm.generate(prompts, PARAMS, lora_request=request)) == expected[name]
        (text,) = {
            tuple(output.outputs[0].token_ids)
            for output in llm.stream(prompts[1], PARAMS[1], lora_request=request)
            if output.finished
        }
        assert list(text) == expected[name][1]


def test_async_requests_choose_adapters(folders, prompts, expected) -> None:
    modules = {name: str(folder) for name, folder in folders.items()}

    async def texts() -> list[list[int]]:
        llm = AsyncLLM("zoo", dtype="float32", lora_modules=modules)

        async def text(place: int, name: str | None) -> list[int]:
            asked = llm.generate(prompts[place], PARAMS[place], is_streaming=False, lora_request=name)
            return [output.outputs[0].token_ids async for output in asked][-1]

        try:
            return await asyncio.gather(*(text(place, name) for place, name in enumerate(NAMES)))
        finally:
            llm.shutdown()

    assert asyncio.run(texts()) == [expected[name][place] for place, name in enumerate(NAMES)]


@pytest.mark.slow
def test_small_caches_and_budgets_change_nothing(folders, prompts, expected) -> None:
    room = {"num_gpu_blocks_override": 12, "block_size": 8, "max_num_batched_tokens": 9, "max_model_len": 64}
    llm = serving(folders, "ngram", **room)
    for _ in range(2):
        assert tokens(llm.generate(prompts, PARAMS, lora_request=NAMES)) == [
            expected[name][place] for place, name in enumerate(NAMES)
        ]


def test_what_cannot_be_served_is_one_sentence(folders) -> None:
    llm = serving(folders)
    for wanted, message in (
        ("al", "there is no adapter 'al': did you mean 'all'. lora_modules has: attention, all, head"),
        (7, "lora_request = 7 must be a LoRARequest, or a name in lora_modules, not int"),
        (LoRARequest("sql", 1, "/no/such"), "adapter 'sql': '/no/such' has no adapter_config.json"),
        (["all"], "1 lora_request for 2 prompts"),
    ):
        with pytest.raises(ConfigError) as error:
            llm.generate([[1], [2]], lora_request=wanted)
        assert message.replace("'all'.", "'all'?") in str(error.value)
    with pytest.raises(ConfigError, match="needs LLM\\(enable_lora=True\\)"):
        LLM("zoo").generate([1], lora_request="all")
    for arguments, message in (
        ({"lora_modules": "sql"}, "lora_modules has 'sql': give a mapping"),
        ({"lora_modules": ["a=x", "a=y"]}, "lora_modules names 'a' twice"),
        ({"lora_modules": {"a": 3}}, "lora_modules has 'a': 3, which is no name and path"),
        ({"enable_lora": True, "deterministic": True}, "deterministic=True does not go with adapters"),
        ({"enable_lora": True, "lora_dtype": "float16"}, "'lora_dtype' = 'float16' is not supported"),
        ({"lora_modules": {"a": str(folders["all"])}, "max_lora_rank": 4}, "rank 8 is above max_lora_rank=4"),
    ):
        with pytest.raises(ConfigError, match=message):
            LLM("zoo", **arguments)
