"""Mask tokens, long prompts, limits, thresholds, masks of grammars, and the compiled loop beside the plain one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import specdec_zoo
from specdec import LLM, ConfigError, SamplingParams
from specdec_plugin_draft_model import DraftModelConfig
from specdec_plugin_draft_model.mask_token import mask_token
from specdec_runtime.drafting.passes import MAX_PASS_ROWS, RowChunk, _portions

PROMPTS = [prompt["prompt"] for prompt in specdec_zoo.prompts(6)]


def make_llm(**keys):
    arguments = {"max_num_batched_tokens": keys.pop("max_num_batched_tokens", 2048)}
    config = {
        "method": "draft_model",
        "model": "zoo",
        "num_speculative_tokens": 4,
        "on_proposer_error": "raise",
    }
    return LLM(
        model="zoo",
        dtype="float32",
        speculative_config=config | keys,
        strict_drafts=True,
        **arguments,
    )


def proposer_of(llm):
    return llm._built.engine.proposer


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"pard_token": 3, "mask_token_id": 4}, 3),
        ({"mask_token_id": 4, "ptd_token_id": 5}, 4),
        ({"ptd_token_id": 5, "dflash_config": {"mask_token_id": 6}}, 5),
        ({"dflash_config": {"mask_token_id": 6}}, 6),
    ],
)
def test_mask_tokens_are_looked_up_in_order(keys, wanted):
    assert mask_token(SimpleNamespace(**keys), 10, "draft") == wanted


def test_a_missing_or_foreign_mask_token_is_an_error():
    with pytest.raises(ConfigError, match="none of pard_token, mask_token_id, ptd_token_id"):
        mask_token(SimpleNamespace(), 10, "draft")
    with pytest.raises(ConfigError, match="pard_token = 10, which is none of its 10 ids"):
        mask_token(SimpleNamespace(pard_token=10), 10, "draft")
    with pytest.raises(ConfigError, match="parallel_drafting"):
        make_llm(parallel_drafting=True)


def test_a_model_is_needed():
    with pytest.raises(ValueError, match="model is missing"):
        DraftModelConfig(num_speculative_tokens=3)


@pytest.mark.parametrize(
    "sizes", [[(10, 1)], [(5000, 1)], [(2047, 1), (3, 3)], [(1, 1), (2048, 2), (2049, 5)]]
)
def test_portions_cover_every_row_once_and_keep_logits_together(sizes):
    pieces = [RowChunk(np.arange(n), 10_000 * i, 7, logits) for i, (n, logits) in enumerate(sizes)]
    portions = list(_portions(pieces))
    assert all(sum(len(p.ids) for p in portion) <= MAX_PASS_ROWS for portion in portions)
    parts = [p for portion in portions for p in portion]
    for index, (n, logits) in enumerate(sizes):
        mine = [p for p in parts if p.first_slot == 10_000 * index]
        assert np.concatenate([p.ids for p in mine]).tolist() == list(range(n))
        assert [p.num_cached for p in mine] == [7 + int(p.ids[0]) for p in mine]
        assert [p.num_logits for p in mine] == [0] * (len(mine) - 1) + [logits]
        assert len(mine[-1].ids) >= logits


@pytest.mark.parametrize("method", ["greedy", "coupled"])
@pytest.mark.sampled(1, slow=1)
def test_the_compiled_loop_drafts_what_the_plain_one_does(monkeypatch, method):
    drafted = []
    for rows in (32, 0):
        llm = make_llm(draft_sample_method=method)
        proposer = proposer_of(llm)
        monkeypatch.setattr(type(proposer._runner.chain), "max_rows", rows)
        seen, taken = [], []
        draft_after = proposer._runner.draft_after
        monkeypatch.setattr(
            proposer._runner,
            "draft_after",
            lambda *arguments, d=draft_after, t=taken: t.append(arguments) or d(*arguments),
        )
        propose = proposer.propose
        monkeypatch.setattr(proposer, "propose", lambda batch, p=propose, s=seen: s.append(p(batch)) or s[-1])
        params = [SamplingParams(temperature=0.8, seed=i, max_tokens=40) for i in range(len(PROMPTS))]
        llm.generate(PROMPTS, params)
        drafted.append([draft.rows for draft in seen])
        # Most steps take in what is new and draft in one call, where there is such a call.
        assert (len(taken) > len(seen) / 2) == (rows > 0)
    assert drafted[0] == drafted[1]
    assert sum(len(row) for rows in drafted[0] for row in rows) > 200


def test_a_context_shorter_than_the_targets_ends_drafting_and_not_the_request():
    llm = make_llm(max_model_len=64)
    seen = []
    proposer = proposer_of(llm)
    propose = proposer.propose
    proposer.propose = lambda batch: seen.append((batch.num_tokens[0], propose(batch))) or seen[-1][1]
    output = llm.generate([[5] * 40], SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 60
    assert max(n + len(draft.rows[0]) for n, draft in seen if draft.rows[0]) == 64
    assert any(draft.rows[0] for n, draft in seen)
    assert not any(draft.rows[0] for n, draft in seen if n >= 64)


def test_a_draft_ends_with_the_first_token_below_the_threshold():
    llm = make_llm(draft_confidence_threshold=0.5, num_speculative_tokens=6)
    seen = []
    proposer = proposer_of(llm)
    propose = proposer.propose
    proposer.propose = lambda batch: seen.append(propose(batch)) or seen[-1]
    llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=24))
    rows = [
        (row, confidence[: len(row)])
        for draft in seen
        if draft.confidence is not None
        for row, confidence in zip(draft.rows, draft.confidence.tolist(), strict=True)
        if row
    ]
    assert len({len(row) for row, _ in rows}) > 2
    for row, confidence in rows:
        assert all(c >= 0.5 for c in confidence[:-1])
        assert confidence[-1] < 0.5 or len(row) <= 6
    assert any(confidence[-1] < 0.5 for _, confidence in rows)


@pytest.mark.parametrize("keys", [{}, {"rejection_sample_method": "probabilistic"}, {"tree_top_k": 2}])
@pytest.mark.sampled(1, slow=1)
def test_a_grammar_masks_the_draft(keys):
    llm = make_llm(**keys)
    seen = []
    proposer = proposer_of(llm)
    propose = proposer.propose
    proposer.propose = lambda batch: seen.append(propose(batch)) or seen[-1]
    params = SamplingParams(
        temperature=0.8, seed=3, max_tokens=24, structured_outputs={"regex": "[0-9]{3}-[0-9]{9}"}
    )
    output = llm.generate([PROMPTS[0]], params)[0]
    text = llm.get_tokenizer().decode([t for draft in seen for t in draft.rows[0]])
    text = text.replace("<|endoftext|>", "")
    assert set(text) <= set("0123456789-")
    assert len(output.outputs[0].text) == 13
    assert len(output.outputs[0].text) == 13


@pytest.mark.slow
def test_long_prompts_in_pieces_and_many_requests_stay_right():
    plain = LLM(model="zoo", dtype="float32")
    prompts = [[int(t) for t in torch.randint(5, 4000, (n,))] for n in (700, 3, 90, 411)]
    params = [SamplingParams(temperature=0.8, seed=i, max_tokens=20) for i in range(4)]
    llm = make_llm(max_num_batched_tokens=128)
    wanted = [output.outputs[0].token_ids for output in plain.generate(prompts, params)]
    assert [output.outputs[0].token_ids for output in llm.generate(prompts, params)] == wanted


def test_finished_requests_leave_nothing():
    llm = make_llm()
    llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=8))
    proposer = proposer_of(llm)
    assert not proposer._rows.states
    assert proposer._rows.pool._blocks.num_free == proposer._rows.pool._blocks.num_blocks


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dtype": "float7"}, "float7"),
        ({"quantization": "awq"}, "'awq'.*not quantised"),
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"tree_top_k": 0}, "tree_top_k"),
        ({"draft_confidence_threshold": 1.5}, "draft_confidence_threshold"),
        ({"draft_sample_method": "coupled", "rejection_sample_method": "block"}, "coupled"),
    ],
)
def test_wrong_keys_are_named(keys, message):
    with pytest.raises(Exception, match=message) as caught:
        make_llm(**keys)
    assert type(caught.value).__name__ in ("ConfigError", "ModelError")
