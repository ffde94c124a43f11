"""Engines that get the target's cache wrong give other texts, so the tests of identity would find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec.engine.kv_manager import KVManager
from specdec_runtime.scorers.transformers import TransformersScorer

BLOCK_SIZE = 4
PROMPTS = [prompt["prompt"][:120] for prompt in specdec_zoo.prompts(3)]
ADDED = [5, 6, 7]


def texts(llm: LLM) -> list[list[int]]:
    """Return the answers to the prompts, which end with a block of the prefix cache, and then those to what goes on there."""
    tokenize = llm.get_tokenizer().encode
    prompts = [ids[: len(ids) // BLOCK_SIZE * BLOCK_SIZE] for ids in map(tokenize, PROMPTS)]
    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=22 * BLOCK_SIZE, ignore_eos=True)
        for i in range(len(PROMPTS))
    ]
    first = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    longer = [[*prompt, *answer, *ADDED] for prompt, answer in zip(prompts, first, strict=True)]
    return [*first, *(output.outputs[0].token_ids for output in llm.generate(longer, params))]


def drafting() -> LLM:
    """Return an engine whose drafts are near the target, but not equal to it."""
    config = {"method": "self", "num_speculative_tokens": 4, "weights": "int4", "adaptive": False}
    return LLM("zoo", dtype="float32", block_size=BLOCK_SIZE, speculative_config=config, strict_drafts=True)


def verification_that_keeps_drafted_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    score: Callable[..., Any] = TransformersScorer.score

    def keeping(self: TransformersScorer, batch: Any) -> Any:
        cache = self.cache
        spans = [slice(row.node_slot, row.node_slot + row.num_nodes) for row in batch.sampled]
        tensors = [*cache.keys.values(), *cache.values.values()]
        with torch.inference_mode():
            drafted = [[tensor[span].clone() for span in spans] for tensor in tensors]
            scores = score(self, batch)
            for tensor, rows in zip(tensors, drafted, strict=True):
                for span, row in zip(spans, rows, strict=True):
                    tensor[span] = row
            return scores

    monkeypatch.setattr(TransformersScorer, "score", keeping)


def blocks_published_with_a_drafted_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: KVManager, sequence: Any) -> None:
        self.pool.publish(sequence, sequence.token_ids[: sequence.num_computed + 1])

    monkeypatch.setattr(KVManager, "publish", early)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return texts(LLM("zoo", dtype="float32", block_size=BLOCK_SIZE))


@pytest.mark.slow
def test_the_engine_itself_passes(expected) -> None:
    assert texts(drafting()) == expected


@pytest.mark.parametrize(
    "mutant", [verification_that_keeps_drafted_rows, blocks_published_with_a_drafted_row]
)
@pytest.mark.slow
def test_a_mutant_is_found(mutant, expected, monkeypatch) -> None:
    mutant(monkeypatch)
    assert texts(drafting()) != expected
