"""A request whose states are lost is left without drafts, and others are drafted for."""

from __future__ import annotations

import pytest

from specdec import LLM, SamplingParams


@pytest.mark.parametrize("num_failures", [1, 2])
def test_after_an_error_the_text_is_right_and_new_requests_are_drafted_for(learnt, texts, num_failures):
    config = {"method": "mlp_speculator", "model": str(learnt[0])}
    llm = LLM(model="zoo", dtype="float32", speculative_config=config, strict_drafts=True, max_num_seqs=3)
    proposer = llm._built.engine.proposer
    propose, calls = proposer.propose, []

    def fail_now_and_then(batch):
        calls.append(batch)
        if len(calls) in (4, 6)[:num_failures]:
            raise RuntimeError("out of memory")
        return propose(batch)

    proposer.propose = fail_now_and_then
    lengths = (40, 30, 20, 40, 30, 40)  # some that have lost their states run beside newer ones
    params = [SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True) for length in lengths]
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in texts.prompts], params)
    for output, answer, length in zip(outputs, texts.answers, lengths, strict=True):
        assert output.outputs[0].token_ids == answer[:length]
    assert outputs[3].metrics.num_accepted_tokens > 10
