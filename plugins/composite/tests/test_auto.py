"""What `auto` takes, says and leaves out."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from speccheck.engines import engine_of

import specdec_zoo
from specdec import LLM, ConfigError, SamplingParams
from specdec.config import parse_speculative_config
from specdec_hosting import HostTarget, open_proposer
from specdec_plugin_suffix.proposer import SuffixProposer


def run(llm: LLM, temperature: float = 0.8) -> list[Any]:
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(4)]
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=96, ignore_eos=True)
    return llm.generate(prompts, params, use_tqdm=False)


def test_no_other_key_is_needed_and_the_text_stays(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        llm = LLM("zoo", dtype="float32", speculative_config={"method": "auto", "on_proposer_error": "raise"})
    expected = [output.outputs[0].token_ids for output in run(LLM("zoo", dtype="float32"))]
    outputs = run(llm)
    assert [output.outputs[0].token_ids for output in outputs] == expected
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 50
    [said] = [record.message for record in caplog.records if "'auto' drafts with" in record.message]
    for name in ("suffix (copies", "self (runs a model", "eagle3 (runs a model"):
        assert name in said


def test_it_is_a_composite_that_chooses() -> None:
    resolved = parse_speculative_config({"method": "auto"})
    assert resolved is not None
    assert [member.proposer.name for member in resolved.proposer_config.proposers][:2] == ["suffix", "self"]  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match="finds its proposers itself: leave 'proposers' out, or take method 'composite'"
    ):
        parse_speculative_config({"method": "auto", "proposers": [{"method": "suffix"}]})


def test_heads_of_another_size_are_left_out_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    target = HostTarget(vocab_size=4096, max_model_len=64)
    with caplog.at_level(logging.WARNING, "specdec"):
        hosted = open_proposer({"method": "auto"}, target, host="a test")
    [said] = [record.message for record in caplog.records if "'auto' drafts with" in record.message]
    assert "'auto' drafts with suffix (copies text); left out: self: " in said
    hosted.start("a", [5, 6, 7, 8, 5])
    assert hosted.propose(["a"]).rows


def test_the_only_one_that_fits_drafts_itself() -> None:
    resolved = parse_speculative_config({"method": "auto"})
    assert resolved is not None
    target = HostTarget(vocab_size=4096, max_model_len=64).info
    assert type(resolved.proposer_class.fitting(resolved.proposer_config, target)) is SuffixProposer


@pytest.mark.usefixtures("defaults_of_users")
@pytest.mark.parametrize(("method", "is_engine"), [("auto", False), ("suffix", True)])
def test_who_chooses_by_measurement(method: str, is_engine: bool) -> None:
    llm = LLM("zoo", dtype="float32", speculative_config={"method": method})
    speculation = engine_of(llm)._speculation
    assert speculation is not None
    assert (speculation.draft_depth is not None) is is_engine


@pytest.mark.slow
def test_no_model_drafts_beside_weights_in_blocks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        llm = LLM("smollm2", speculative_config={"method": "auto"}, max_model_len=512)
    [said] = [record.message for record in caplog.records if "'auto' drafts with" in record.message]
    assert "'auto' drafts with suffix (copies text); left out: " in said
    assert "eagle3: beside weights in the blocks of a file" in said
    assert run(llm)
