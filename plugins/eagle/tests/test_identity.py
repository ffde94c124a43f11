"""The text is the target's, whatever the head."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout
from eagle_check.shape import Shape
from eagle_check.targets import make_head
from head_check.target import VOCAB, target_model
from transformers import AutoModelForCausalLM, PreTrainedModel

import specdec_zoo
from specdec import LLM, RequestOutput, SamplingParams

TINY = {"is_eagle3": False, "has_own_lm_head": False}
ZOO = {"vocab": 4096, "hidden": 256, "target_hidden": 256, "head_dim": 64, "intermediate": 320}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "eagle": (TINY, {}),
    "eagle tree": (TINY, {"tree_top_k": 3, "draft_sample_method": "greedy"}),
    "eagle3": ({"num_logits": 40, "has_map": True}, {}),
    "eagle3 tree": ({"num_logits": 40, "has_map": True}, {"tree_top_k": 4}),
    "eagle3 static": ({}, {"tree_choices": [[0]], "draft_confidence_threshold": 0.01}),
    "parallel": ({"mask_id": 5}, {"parallel_drafting": True}),
}
LENGTHS = (9, 1, 30, 2, 17, 40, 5)
MAX_TOKENS = 24


def speculation(folder: Path, shape: Shape, k: int, keys: dict[str, Any]) -> dict[str, Any]:
    path, _ = make_head(folder, shape, Layout())
    method = "eagle3" if shape.is_eagle3 else "eagle"
    config = {"method": method, "model": path, "num_speculative_tokens": k, "on_proposer_error": "raise"}
    return config | keys


def prompts(count: int, vocab: int = VOCAB) -> list[list[int]]:
    return [[(7 * i * i + 3 * i + index) % vocab for i in range(LENGTHS[index])] for index in range(count)]


def run(
    llm: LLM, count: int, temperature: float, vocab: int = VOCAB, min_tokens: int = 0
) -> list[RequestOutput]:
    # As `min_new_tokens` of `transformers`: the end of text is not chosen, where it would be the best token too.
    params = [
        SamplingParams(
            temperature=temperature,
            seed=i,
            max_tokens=MAX_TOKENS,
            min_tokens=min_tokens,
            ignore_eos=not min_tokens,
        )
        for i in range(count)
    ]
    return llm.generate(prompts(count, vocab), params)


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def make_llm(config: dict[str, Any] | None, **arguments: Any) -> LLM:
    model = copy.deepcopy(target_model())
    return LLM(
        model,
        speculative_config=config,
        max_model_len=96,
        skip_tokenizer_init=True,
        strict_drafts=True,
        **arguments,
    )


@torch.inference_mode()
def generated(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """Return what `generate` of `transformers` says greedily."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=MAX_TOKENS,
        min_new_tokens=MAX_TOKENS,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@pytest.fixture(scope="module")
def plain() -> Callable[[int, float], list[list[int]]]:
    llm = make_llm(None)
    known: dict[tuple[int, float], list[list[int]]] = {}

    def text(count: int, temperature: float) -> list[list[int]]:
        if (count, temperature) not in known:
            known[count, temperature] = tokens(run(llm, count, temperature))
        return known[count, temperature]

    return text


@pytest.fixture(scope="module")
def greedy() -> list[list[int]]:
    return [generated(target_model(), prompt) for prompt in prompts(len(LENGTHS))]


@pytest.mark.parametrize(
    ("kind", "k", "count"),
    [
        pytest.param(kind, k, count, marks=() if index % 3 == turn else pytest.mark.slow)
        for index, kind in enumerate(KINDS)
        for turn, (k, count) in enumerate([(5, 7), (8, 1), (1, 7)])
    ],
)
def test_text_is_that_of_plain_decoding(tmp_path: Path, plain, greedy, kind, k, count) -> None:
    given, keys = KINDS[kind]
    llm = make_llm(speculation(tmp_path, Shape(**given), k, keys))
    assert tokens(run(llm, count, 0.0)) == greedy[:count]
    sampled = run(llm, count, 1.0)
    assert tokens(sampled) == plain(count, 1.0)
    metrics = [output.metrics for output in sampled]
    assert sum(m.num_draft_tokens for m in metrics) > 10
    if count > 1 and "draft_sample_method" not in keys:
        assert sum(m.num_accepted_tokens for m in metrics) > 5


@pytest.mark.parametrize("kind", ["eagle", "eagle3 tree"])
@pytest.mark.sampled(1, slow=1)
def test_text_on_the_zoo_is_that_of_transformers(tmp_path: Path, kind: str) -> None:
    given, keys = KINDS[kind]
    shape = Shape(**ZOO | {k: v for k, v in given.items() if not k.startswith("num_")})
    if shape.is_eagle3:
        shape = Shape(**ZOO, num_logits=512, has_map=True)
    llm = LLM(model="zoo", dtype="float32", speculative_config=speculation(tmp_path, shape, 4, keys))
    got = tokens(run(llm, 3, 0.0, 4096, MAX_TOKENS))
    reference = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    assert got == [generated(reference, prompt) for prompt in prompts(3, 4096)]
