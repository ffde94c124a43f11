"""The text is the target's, whatever the heads; heads that have learnt a text draft it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.engines import zoo

from specdec import LLM, SamplingParams
from specdec_plugin_mlp import MLPSpeculatorProposer

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"draft_sample_method": "greedy"},
    "coupled": {},
    "drawn": {"draft_sample_method": "probabilistic"},
    "tree": {"tree_top_k": 3, "num_speculative_tokens": 9},
    "unsure": {"draft_confidence_threshold": 0.3},
}


def make_llm(model: object, **keys: Any) -> LLM:
    config = {"method": "mlp", "model": str(model), "on_proposer_error": "raise", **keys}
    return LLM(zoo(), speculative_config=config, strict_drafts=True, max_num_seqs=4)


def run(llm: LLM, prompts: list[list[int]], temperature: float, **keys: Any) -> list[Any]:
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=24, ignore_eos=True, **keys)
        for i in range(len(prompts))
    ]
    return llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)


def tokens(outputs: list[Any]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def plain(texts):
    llm = LLM(zoo())
    return {t: tokens(run(llm, texts.prompts, t)) for t in (0.0, 0.8)}


@pytest.mark.filterwarnings("ignore:.*lowers acceptance")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(2, slow=2)
def test_text_is_that_of_plain_decoding(learnt, texts, plain, kind):
    llm = make_llm(learnt[0], **KINDS[kind])
    for temperature, wanted in plain.items():
        assert tokens(run(llm, texts.prompts, temperature)) == wanted


def test_random_heads_change_nothing(make_heads, texts, plain):
    llm = make_llm(make_heads(), num_speculative_tokens=2)
    for temperature, wanted in plain.items():
        assert tokens(run(llm, texts.prompts, temperature)) == wanted


@pytest.mark.parametrize("sampler", ["probabilistic", "block"])
@pytest.mark.parametrize("keys", [{}, {"tree_top_k": 2, "num_speculative_tokens": 6}])
@pytest.mark.sampled(1, slow=1)
def test_samplers_that_use_q(learnt, texts, plain, sampler, keys):
    llm = make_llm(learnt[0], rejection_sample_method=sampler, **keys)
    assert tokens(run(llm, texts.prompts, 0.0)) == plain[0.0]
    outputs = run(llm, texts.prompts, 0.8, top_p=0.9)
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 20


@pytest.mark.parametrize("keys", [{}, {"tree_top_k": 2, "num_speculative_tokens": 6}])
def test_what_was_learnt_is_drafted(learnt, texts, keys):
    """Heads one token off, or states one token late, would guess hardly any of it."""
    outputs = run(make_llm(learnt[0], **keys), texts.prompts[:4], 0.0)
    assert all(output.metrics.mean_acceptance_length > 3.5 for output in outputs)
    first = outputs[0].metrics
    assert first.num_accepted_tokens > 15


def test_training_lowers_the_loss(learnt):
    losses = learnt[1]
    assert losses[0] > 8.0
    assert losses[-1] < 0.5


def watched(llm: LLM) -> list[tuple[Any, Any]]:
    """Return a list that every batch and its draft are added to."""
    proposer, seen = llm._built.engine.proposer, []
    assert isinstance(proposer, MLPSpeculatorProposer)
    propose = proposer.propose
    proposer.propose = lambda batch: seen.append((batch, propose(batch))) or seen[-1][1]
    return seen


def test_a_draft_ends_with_the_first_token_below_the_threshold(learnt, texts):
    llm = make_llm(learnt[0], draft_confidence_threshold=0.6)
    seen = watched(llm)
    run(llm, texts.prompts, 0.0)
    lengths = set()
    for batch, draft in seen:
        for row, drafted in enumerate(draft.rows):
            if drafted:
                *others, last = draft.confidence[row, : len(drafted)].tolist()
                assert all(confidence >= 0.6 for confidence in others)
                assert last < 0.6 or len(drafted) == batch.max_nodes[row]
                lengths.add(len(drafted))
    assert lengths == {1, 2, 3}


def test_a_context_shorter_than_the_targets_ends_drafting_and_not_the_request(learnt, texts):
    limit = len(texts.prompts[0]) + 10
    llm = make_llm(learnt[0], max_model_len=limit)
    seen = watched(llm)
    (output,) = run(llm, texts.prompts[:1], 0.0)
    assert output.outputs[0].token_ids == texts.answers[0][:24]
    ends = [batch.num_tokens[0] + len(draft.rows[0]) for batch, draft in seen if draft.rows[0]]
    assert max(ends) == limit


@pytest.mark.parametrize("keys", [{}, {"rejection_sample_method": "probabilistic"}, {"tree_top_k": 2}])
def test_a_grammar_masks_the_draft(learnt, texts, keys):
    llm = make_llm(learnt[0], **keys)
    seen = watched(llm)
    params = SamplingParams(
        temperature=0.8, seed=3, max_tokens=24, structured_outputs={"regex": "[0-9]{3}-[0-9]{9}"}
    )
    output = llm.generate([{"prompt_token_ids": texts.prompts[0]}], params)[0]
    drafted = [token for _, draft in seen for token in draft.rows[0]]
    text = llm.get_tokenizer().decode(drafted).replace("<|endoftext|>", "")
    assert drafted
    assert set(text) <= set("0123456789-")
    assert len(output.outputs[0].text) == 13


def test_finished_requests_leave_nothing(learnt, texts):
    llm = make_llm(learnt[0])
    run(llm, texts.prompts, 0.0)
    states = llm._built.engine.proposer._states
    assert not states._states
    assert not states._ends


def test_a_target_in_bfloat16_is_drafted_for(learnt, texts):
    config = {"method": "mlp_speculator", "model": str(learnt[0]), "on_proposer_error": "raise"}
    llm = LLM(model="zoo", dtype="bfloat16", speculative_config=config)
    heads = llm._built.engine.proposer._heads
    assert heads.head[0].weight.dtype == torch.bfloat16
    outputs = run(llm, texts.prompts[:4], 0.0)
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 20
