"""Adapters on tiny models of other structures: the tokens of PEFT's own models, or a refusal that names the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from speccheck.adapters import adapted_by_peft, make_adapter
from speccheck.hybrids import HYBRIDS, hybrid
from speccheck.models import copied, prompts, tiny
from transformers import PreTrainedModel

from specdec import LLM, ConfigError, SamplingParams

pytestmark = pytest.mark.slow

PROMPTS = prompts([23, 9], seed=5)
NUM_TOKENS = 20
SERVED: dict[str, Any] = {
    "gpt2": ["c_attn", "c_proj", "c_fc"],  # Conv1D, whose weights are transposed
    "opt": "all-linear",
    "phi3": "all-linear",
    "gemma2": "all-linear",
    "mixtral": ["q_proj", "o_proj"],
    "deepseek_v3": ["q_a_proj", "kv_b_proj", "o_proj"],
    "falcon_h1": ["q_proj", "v_proj", "gate_proj"],
}
REFUSED = {"falcon_h1": ["in_proj"], "lfm2": ["out_proj"]}
"""Modules of layers with states, which are called with the rows of one request."""


def model_of(name: str) -> PreTrainedModel:
    return hybrid(name) if name in HYBRIDS else tiny(name)


def generated(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    text = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False
    )
    return text[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", SERVED)
def test_tokens_are_those_of_peft(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    folder = make_adapter(copied(model), tmp_path, seed=3, r=4, lora_alpha=32, target_modules=SERVED[name])
    plain = [generated(copied(model), prompt) for prompt in PROMPTS]
    adapted = [generated(adapted_by_peft(folder, copied(model)), prompt) for prompt in PROMPTS]
    assert all(text != other for text, other in zip(plain, adapted, strict=True))
    llm = LLM(
        copied(model),
        speculative_config={"method": "ngram", "prompt_lookup_min": 1, "num_speculative_tokens": 4},
        lora_modules={"a": str(folder)},
    )
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    both = [*PROMPTS, *PROMPTS]
    outputs = llm.generate(both, params, lora_request=["a", None, None, "a"])
    assert [output.outputs[0].token_ids for output in outputs] == [adapted[0], plain[1], plain[0], adapted[1]]


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_are_not_given_all_rows_are_refused(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    folder = make_adapter(copied(model), tmp_path, r=4, target_modules=REFUSED[name])
    with pytest.raises(ConfigError, match=f"changes '.*{REFUSED[name][0]}', which is not a linear map"):
        LLM(copied(model), lora_modules={"a": str(folder)})
