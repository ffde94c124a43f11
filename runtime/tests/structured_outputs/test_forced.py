"""Forced tokens: what rules leave alone is drafted, and the masks and texts stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.engines import engine_of, make_llm
from speccheck.grammars import state_of
from speccheck.models import prompts, tiny

from specdec import LLM, SamplingParams
from specdec_runtime.structured_outputs.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("rows_that_cost_nothing")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"first_name": {"enum": ["Ada", "Bob"]}, "is_member": {"type": "boolean"}},
    "required": ["first_name", "is_member"],
    "additionalProperties": False,
}
WORDS = ["a", "b", "ab", "c", "abc", "<end>"]
END = WORDS.index("<end>")


def test_the_only_allowed_ids_are_forced_and_the_state_stays() -> None:
    grammar = state_of({"regex": "(ca|cb)ccc"}, WORDS)
    before = grammar.mask_after([])
    assert grammar.forced(8) == [3]  # then a or b
    assert grammar.forced(0) == []
    grammar.advance([3, 0])
    assert grammar.forced(8) == [3, 3, 3, END]
    assert grammar.forced(2) == [3, 3]
    grammar.advance([3, 3, 3, END])
    assert grammar.forced(8) == []
    assert torch.equal(state_of({"regex": "(ca|cb)ccc"}, WORDS).mask_after([]), before)


def test_a_text_with_several_spellings_is_not_the_only_one() -> None:
    """`ab` may be one id or two, so that nothing is forced where no tokenizer says which is usual."""
    assert state_of({"regex": "abc"}, WORDS).forced(8) == []


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("zoo", dtype="float32")


PROMPT = "import json\nmember = "
FREE = {"temperature": 0.0, "max_tokens": 80}


def generated(llm: LLM, **keys: Any) -> Any:
    return llm.generate([PROMPT], SamplingParams(**FREE | keys))[0]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(
    "rule",
    [{"json": SCHEMA}, {"regex": "the answer is (yes|no)!"}, {"choice": ["class one", "class two"]}],
    ids=str,
)
def test_texts_are_the_same_in_fewer_steps(llm: LLM, temperature: float, rule: dict[str, Any]) -> None:
    keys = {"structured_outputs": rule, "temperature": temperature, "seed": 5}
    plain = generated(llm, **keys, speculative=False)
    output = generated(llm, **keys, return_draft_steps=True)
    sample = output.outputs[0]
    assert sample.token_ids == plain.outputs[0].token_ids
    assert plain.metrics.num_drafts == 0
    assert output.metrics.num_accepted_tokens >= 3
    assert {step.proposer for step in sample.draft_steps if step.token_ids} == {"forced"}
    assert len(sample.draft_steps) < len(sample.token_ids)


def test_the_end_of_a_complete_text_is_drafted(llm: LLM) -> None:
    sample = generated(llm, structured_outputs={"choice": ["yes"]}, return_draft_steps=True).outputs[0]
    last = sample.draft_steps[-1]
    assert sample.text == "yes"
    assert (
        sample.token_ids[-1] == last.token_ids[last.accepted[-1]] in llm._input_processor._info.eos_token_ids
    )


def test_a_proposer_with_longer_drafts_goes_first() -> None:
    """Where forced tokens are fewer than what the method gets accepted, its drafts are kept."""
    lines = {"regex": r"(x = [a-z_.(),= ]{24}\n){6}"}
    rule = {"structured_outputs": lines, "temperature": 0.0, "max_tokens": 80}
    llm = LLM("zoo", dtype="float32", speculative_config={"method": "ngram", "num_speculative_tokens": 5})
    output = llm.generate([PROMPT], SamplingParams(**rule, return_draft_steps=True))[0]
    names = [step.proposer for step in output.outputs[0].draft_steps if step.token_ids]
    assert "ngram" in names
    plain = llm.generate([PROMPT], SamplingParams(**rule, speculative=False))[0]
    assert plain.outputs[0].token_ids == output.outputs[0].token_ids


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_beside_methods_with_a_cache_of_their_own(llm: LLM, method: str) -> None:
    config = {"method": method, "model": "zoo", "num_speculative_tokens": 3}
    other = LLM("zoo", dtype="float32", speculative_config=config)
    keys = {"structured_outputs": {"json": SCHEMA}}
    assert generated(other, **keys).outputs[0].token_ids == generated(llm, **keys).outputs[0].token_ids
    assert engine_of(other).metrics.proposer_errors == 0


def test_ids_that_lists_and_min_tokens_leave_alone() -> None:
    model = tiny("llama")
    model.generation_config.eos_token_id = model.config.eos_token_id = 9
    llm = make_llm(model)
    keys = {"temperature": 0.0, "max_tokens": 20, "return_draft_steps": True}
    for extra, end in (
        ({"allowed_token_ids": [4]}, 20),
        ({"allowed_token_ids": [4, 9], "min_tokens": 12}, 12),
    ):
        sample = llm.generate(prompts([9], seed=2), SamplingParams(**keys, **extra))[0].outputs[0]
        drafted = sum(len(step.token_ids) for step in sample.draft_steps)
        accepted = sum(len(step.accepted) for step in sample.draft_steps)
        assert sample.token_ids[:end] == [4] * end
        assert accepted >= end - 3  # the prompt and the two full drafts emit one more each
        assert drafted == accepted


def test_forced_tokens_are_not_counted_as_predicted_ones() -> None:
    params = SamplingParams(max_tokens=12, allowed_token_ids=[4], prediction=[4] * 12)
    metrics = make_llm(tiny("llama")).generate(prompts([9], seed=2), params)[0].metrics
    assert metrics.num_accepted_tokens >= 8
    assert (metrics.num_accepted_prediction_tokens, metrics.num_rejected_prediction_tokens) == (0, 0)


def test_a_spelling_of_another_text_is_cut_where_it_differs() -> None:
    """Some tokenizers begin every text with a space; their ids are no draft of a part of a text."""

    def spells(text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [{"a": 0, "b": 1}.get(letter, 3) for letter in text]}

    words = Vocabulary([word.encode() for word in WORDS], [END], spells)
    assert words.spell(b"abz") == (0, 1)
    assert words.spell(b"zab") == ()
    assert words.spell(b"ab\xc3") == (0, 1)
