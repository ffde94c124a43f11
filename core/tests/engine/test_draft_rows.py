"""Rows of a draft may be lists, arrays or tensors; what comes of them are plain integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.engines import engine_of, make_llm, proposer_of, scripted, tokens_of

from specdec import Draft, SamplingParams

FORMS = {
    "list": list,
    "numpy": np.array,
    "numpy int32": lambda row: np.array(row, np.int32),
    "list of numpy ids": lambda row: [np.int64(i) for i in row],
    "tensor": torch.tensor,
    "list of tensors": lambda row: [torch.tensor(i) for i in row],
}
ROWS = [[3, 5, 7], [2], []]
PARENTS = [[-1, -1, 0], [-1], []]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_draft(form) -> None:
    def made(rows):
        return [FORMS[form](row) if row else row for row in rows]

    plain = Draft.from_lists(ROWS, PARENTS, confidence=[[0.5, 0.25, 1.0], [0.0], []])
    draft = Draft.from_lists(
        made(ROWS), made(PARENTS), confidence=[np.array([0.5, 0.25, 1.0]), torch.zeros(1), []]
    )
    assert draft.rows == plain.rows == ((3, 5, 7), (2,), ())
    assert {type(token) for row in draft.rows for token in row} == {int}
    for name in ("token_ids", "parents", "confidence"):
        got, want = getattr(draft, name), getattr(plain, name)
        assert torch.equal(got, want)
        assert got.dtype is want.dtype


@pytest.mark.parametrize("row", [[1.0], np.array([1.5]), torch.tensor([2.0]), ["1"]])
def test_ids_that_are_no_integers_raise(row) -> None:
    with pytest.raises(TypeError):
        Draft.from_lists([row])
    with pytest.raises(TypeError):
        Draft.from_lists([[1]], [row])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampler", ["strict", "probabilistic"])
@pytest.mark.parametrize("keys", [{}, {"logprobs": 1}, {"temperature": 0.0}, {"logit_bias": {3: 1.0}}])
@pytest.mark.sampled(12, slow=18)
def test_every_form_can_be_verified(subject, form, sampler, keys) -> None:
    params = SamplingParams(**{"temperature": 0.8, "seed": 7, "max_tokens": 12, "ignore_eos": True} | keys)
    expected = tokens_of(make_llm(subject.model), subject.prompts, params)
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]
    llm = make_llm(subject.model, scripted(k=3, texts=texts, rejection_sample_method=sampler))
    proposer = proposer_of(llm)
    plain = proposer.draft
    proposer.draft = lambda batch: Draft.from_lists(
        [FORMS[form](row) if row else row for row in plain(batch).rows]
    )
    outputs = llm.generate(subject.prompts, params)
    metrics = engine_of(llm).metrics
    assert (metrics.proposer_errors, metrics.proposer_nodes_cut) == (0, 0)
    assert metrics.num_accepted_tokens > 0
    assert {type(token) for output in outputs for token in output.outputs[0].token_ids} == {int}
    if sampler == "strict":
        assert [output.outputs[0].token_ids for output in outputs] == expected
