"""What a proposer is told of a request whose prompt is cached: what it does not hold, with its states, and nothing twice."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of
from speccheck.states import check_states

from specdec import LLM, FinishReason
from specdec.adaptive import AdaptiveDepth

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"max_num_batched_tokens": 11},
    "one by one": {"max_num_batched_tokens": 3, "max_num_seqs": 1, "num_gpu_blocks_override": 200},
    "preempted": {"max_num_seqs": 6, "max_num_batched_tokens": 40, "max_model_len": 128, "num_gpu_blocks_override": 34},
}  # fmt: skip


def resuming(subject, name: str = "Resuming", **keys: Any) -> dict[str, Any]:
    known = {"on_proposer_error": "raise", "adaptive": False, "texts": subject.texts}
    return scripted(name, 3, **known | keys) | {"method": f"speccheck.resuming.{name}"}


def num_rerun(llm: LLM) -> int:
    return next(m.value for m in llm.get_metrics() if m.name == "specdec:prefix_tokens_rerun")


def twice(llm: LLM, subject) -> list[Any]:
    """Ask everything twice; return what came the second time."""
    for _ in range(2):
        outputs = llm.generate(subject.prompts, greedy(32))
        assert [output.outputs[0].token_ids for output in outputs] == subject.expected
    return outputs


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("most", [0, 1, 6, 16, 10**6])
@pytest.mark.sampled(6, slow=8)
def test_every_token_is_held_or_comes_with_its_states(subject, run, most) -> None:
    llm = make_llm(subject.model, resuming(subject, most=most), block_size=4, **RUNS[run])
    proposer = proposer_of(llm)
    outputs = twice(llm, subject)
    assert proposer.complaints == []
    assert proposer.held == {}
    for output, text in zip(outputs, subject.texts, strict=True):
        check_states(subject.model, proposer, output.request_id, text)
        length = len(output.prompt_token_ids)
        held_first = proposer.pieces[output.request_id][0][0]  # before a preemption
        assert output.num_cached_tokens == min(held_first, length)
        if run != "preempted":
            assert output.num_cached_tokens == min(most, (length - 1) // 4 * 4)
            assert proposer.pieces[output.request_id][0][0] == output.num_cached_tokens
    assert num_rerun(llm) == sum(length - held for _, length, held in proposer.asked)
    if run == "preempted":
        assert engine_of(llm).metrics.num_preemptions > 0


def test_one_that_reads_no_states_limits_nothing(subject) -> None:
    for name in ("TokenResuming", "Recorder"):
        keys = resuming(subject, name)
        if name == "Recorder":
            keys["method"] = "speccheck.proposers.Recorder"
        llm = make_llm(subject.model, keys, block_size=4)
        proposer = proposer_of(llm)
        outputs = twice(llm, subject)
        assert proposer.complaints == []
        assert num_rerun(llm) == 0
        for output in outputs:
            cached = (len(output.prompt_token_ids) - 1) // 4 * 4
            assert output.num_cached_tokens == cached
            assert proposer.pieces[output.request_id][0][0] == (cached if name == "TokenResuming" else 0)


def test_one_that_cannot_resume_has_everything_computed_again_and_that_is_said_once(subject, caplog) -> None:
    keys = scripted("HiddenRecorder", 3, texts=subject.texts)
    llm = make_llm(subject.model, keys, block_size=4)
    proposer = proposer_of(llm)
    with caplog.at_level(logging.WARNING, "specdec"):
        outputs = twice(llm, subject)
        assert tokens_of(llm, subject.prompts[1:2], greedy(32)) == subject.expected[1:2]
    assert proposer.complaints == []
    for output, text in zip(outputs, subject.texts, strict=True):
        assert output.num_cached_tokens == 0
        assert proposer.pieces[output.request_id][0][0] == 0
        check_states(subject.model, proposer, output.request_id, text)
    cached = [(len(prompt) - 1) // 4 * 4 for prompt in subject.prompts]
    assert num_rerun(llm) == sum(cached) + cached[1]
    [record] = caplog.records
    assert "'hidden_recorder' reads hidden states and has no `resume`" in record.getMessage()
    assert f"{cached[0]} tokens of a prompt" in record.getMessage()


def test_one_that_was_asked_and_then_rests_is_told_that_the_request_ended(subject) -> None:
    keys = resuming(subject, "Noting", disable_by_batch_size=1)
    llm = make_llm(subject.model, keys, block_size=4, max_num_seqs=3)
    proposer = proposer_of(llm)
    twice(llm, subject)
    # The fourth begins and ends while the first and the third run.
    outputs = llm.generate(subject.prompts, [greedy(4 if i % 2 else 32) for i in range(6)])
    assert outputs[3].request_id not in proposer.pieces
    assert proposer.held == {}
    assert proposer.complaints == []


def test_without_a_prefix_cache_nobody_is_asked(subject) -> None:
    llm = make_llm(subject.model, resuming(subject), block_size=4, enable_prefix_caching=False)
    outputs = twice(llm, subject)
    assert proposer_of(llm).asked == []
    assert {output.num_cached_tokens for output in outputs} == {0}
    assert proposer_of(llm).target_info.prefix_block_size == 0


@pytest.mark.parametrize("answer", ["raise", -1, 10**9, 2.5, "many"])
def test_one_that_fails_or_lies_about_lengths_costs_the_prefix_only(subject, answer, caplog) -> None:
    keys = resuming(subject, answer=answer, on_proposer_error="fallback")
    llm = make_llm(subject.model, keys, block_size=4)
    proposer = proposer_of(llm)
    with caplog.at_level(logging.WARNING, "specdec"):
        outputs = twice(llm, subject)
    # One prompt is too short for a block. After three failures the proposer is not asked any more: the target takes over the
    # prefixes of the other two, whose states nobody then has.
    metrics = engine_of(llm).metrics
    assert metrics.proposer_errors == len(proposer.asked) == 3
    assert metrics.requests_left_out == 2
    assert sum(output.num_cached_tokens > 0 for output in outputs) == 2
    assert len([r for r in caplog.records if "raised in resume" in r.getMessage()]) == 1
    assert proposer.complaints == []
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        twice(make_llm(subject.model, resuming(subject, answer=answer), block_size=4), subject)


def test_samples_of_one_prompt_and_of_another_that_begins_alike(subject) -> None:
    llm = make_llm(subject.model, resuming(subject), block_size=4, max_num_seqs=2)
    proposer = proposer_of(llm)
    [several] = llm.generate(subject.prompts[3:4], greedy(32, n=3))
    assert [sample.token_ids for sample in several.outputs] == subject.expected[3:4] * 3
    part = subject.prompts[3][:50]
    [output] = llm.generate([part], greedy(32))
    assert output.num_cached_tokens == 48
    plain = make_llm(subject.model, enable_prefix_caching=False)
    assert output.outputs[0].token_ids == tokens_of(plain, [part], greedy(32))[0]
    check_states(subject.model, proposer, output.request_id, [*part, *output.outputs[0].token_ids])
    assert proposer.complaints == []


@pytest.fixture
def always_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting never pays."""

    def begin(self: AdaptiveDepth, sequences: object, most: int) -> int:
        self.is_suspended = True
        return 0

    monkeypatch.setattr(AdaptiveDepth, "begin", begin)


def test_a_prefix_that_was_missed_is_told_while_the_proposer_rests(subject, always_paused) -> None:
    llm = make_llm(subject.model, resuming(subject, adaptive=True), block_size=4)
    proposer = proposer_of(llm)
    prompt, expected = subject.prompts[1], subject.expected[1]
    cached = []
    for max_tokens in (32, 32, 32, 1):
        [output] = llm.generate([prompt], greedy(max_tokens))
        assert output.outputs[0].token_ids == expected[:max_tokens]
        cached.append(output.num_cached_tokens)
    assert cached == [0, 0, 36, 36]
    assert proposer.complaints == []
    # What ends with its first token is told as it leaves.
    other = subject.prompts[5]
    found = [llm.generate([other], greedy(1))[0].num_cached_tokens for _ in range(3)]
    assert found == [0, 0, 36]


def test_one_aborted_before_its_first_row_is_finished(subject, always_paused) -> None:
    llm = make_llm(subject.model, resuming(subject, adaptive=True), block_size=4)
    proposer = proposer_of(llm)
    for _ in range(2):
        llm.generate(subject.prompts[1:2], greedy(4))
    stream = llm.stream(subject.prompts[1], greedy(32))
    next(stream)
    assert list(proposer.held) != []
    stream.close()
    assert proposer.held == {}
    assert proposer.finished[-1][1] is FinishReason.ABORT
