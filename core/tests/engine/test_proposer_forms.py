"""Ways to name a proposer, and the form of the batch for those that run on the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import speccheck.proposers
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of

from specdec import FinishReason, PluginError


def test_a_class_in_a_local_file(subject) -> None:
    file = Path(speccheck.proposers.__file__)
    for keys in (
        {"method": f"{file}:Scripted"},
        {"method": "custom_class", "model": "speccheck.proposers.Scripted"},
    ):
        llm = make_llm(subject.model, keys | {"num_speculative_tokens": 4, "texts": subject.texts})
        assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
        assert engine_of(llm).metrics.num_accepted_tokens > 50
    with pytest.raises(PluginError, match="no class 'Absent'"):
        make_llm(subject.model, {"method": f"{file}:Absent", "num_speculative_tokens": 4})


@pytest.mark.parametrize("run", [{}, {"max_num_seqs": 2}, {"max_num_batched_tokens": 9}])
def test_the_device_form(subject, run) -> None:
    llm = make_llm(subject.model, scripted("DeviceRecorder", 5, texts=subject.texts), **run)
    proposer = proposer_of(llm)
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    metrics = engine_of(llm).metrics
    assert metrics.proposer_errors == metrics.proposer_nodes_cut == 0
    assert metrics.num_accepted_tokens == metrics.num_draft_tokens > 100
    assert proposer.complaints == []
    ended = {name: (reason, held) for name, reason, held in proposer.finished}
    for output, text in zip(outputs, subject.texts, strict=True):
        assert ended[output.request_id] == (FinishReason.LENGTH, text)
