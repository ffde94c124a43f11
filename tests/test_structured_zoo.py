"""JSON that follows a schema, on the zoo's target: always valid, and the same with any draft."""

from __future__ import annotations

import json
from typing import Any

import pytest

import specdec_zoo
from specdec import LLM, SamplingParams

pytestmark = pytest.mark.slow

NUM_PROMPTS = 40
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["function", "class", "module"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
    },
    "required": ["name", "kind", "size", "tags"],
    "additionalProperties": False,
}
OUTPUT = {"json": SCHEMA, "disable_any_whitespace": True}
PROMPTS = [prompt["prompt"] for prompt in specdec_zoo.prompts(NUM_PROMPTS)]
PARAMS = [
    SamplingParams(temperature=0.8, seed=i, max_tokens=200, structured_outputs=OUTPUT)
    for i in range(NUM_PROMPTS)
]


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    return LLM("zoo", dtype="float32").generate(PROMPTS, PARAMS)


def is_valid(text: str) -> bool:
    """Whether a text is JSON that follows the schema; written out, so that no grammar library judges itself."""
    value = json.loads(text)
    return (
        list(value) == ["name", "kind", "size", "tags"]
        and isinstance(value["name"], str)
        and len(value["name"]) <= 12
        and value["kind"] in ("function", "class", "module")
        and isinstance(value["size"], int)
        and 0 <= value["size"] <= 999
        and len(value["tags"]) <= 3
        and all(isinstance(tag, str) and len(tag) <= 6 for tag in value["tags"])
    )


def test_every_text_is_valid(plain) -> None:
    completions = [output.outputs[0] for output in plain]
    assert [c.finish_reason for c in completions] == ["stop"] * NUM_PROMPTS
    assert sum(is_valid(c.text) for c in completions) == NUM_PROMPTS
    assert len({c.text for c in completions}) > NUM_PROMPTS // 2


@pytest.mark.parametrize("shape", ["ngram", pytest.param("chain", marks=pytest.mark.full), "tree"])
def test_speculation_changes_no_token(plain, shape) -> None:
    expected = [output.outputs[0].token_ids for output in plain]
    if shape == "ngram":
        config = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    else:
        texts = [[*output.prompt_token_ids, *output.outputs[0].token_ids] for output in plain]
        config = {
            "method": "speccheck.proposers.Scripted", "num_speculative_tokens": 6, "shape": shape, "wrong": 0.2,
            "texts": texts,
        }  # fmt: skip
    llm = LLM("zoo", dtype="float32", speculative_config=config, max_num_seqs=16)
    outputs = llm.generate(PROMPTS, PARAMS)
    assert [output.outputs[0].token_ids for output in outputs] == expected
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 100
