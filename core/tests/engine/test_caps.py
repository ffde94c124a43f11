"""Limits on drafting, never overrun; and the numbers that metrics show."""

from __future__ import annotations

import pluggy
import pytest
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of

from specdec import hookimpl
from specdec.hooks import PROJECT


def wanted(llm) -> list[tuple[int, int]]:
    """Record (rows of the batch, most nodes) of every call from now on."""
    proposer = proposer_of(llm)
    seen: list[tuple[int, int]] = []
    check = proposer.check

    def record(batch) -> None:
        seen.append((len(batch.request_ids), max(batch.max_nodes, default=0)))
        check(batch)

    proposer.check = record
    return seen


def test_no_drafts_above_a_batch_size(subject) -> None:
    speculation = scripted("Recorder", 4, texts=subject.texts, disable_by_batch_size=2)
    llm = make_llm(subject.model, speculation)
    seen = wanted(llm)
    params = [greedy(n) for n in (4, 8, 12, 16, 32, 32)]
    outputs = llm.generate(subject.prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == [
        e[: p.max_tokens] for e, p in zip(subject.expected, params, strict=True)
    ]
    running = [n for n, k in seen if k]
    assert running
    # Rows that have just ended are in a batch once more; they do not run.
    assert max(running) <= 2 + 1
    assert all(o.metrics.num_drafts == 0 for o in outputs[:3])
    assert outputs[5].metrics.num_drafts > 0
    assert proposer_of(llm).complaints == []


def test_k_by_batch_size(subject) -> None:
    rows = [[1, 1, 5], [2, 3, 2], [4, 6, 0]]
    speculation = scripted("Recorder", 6, texts=subject.texts, num_speculative_tokens_per_batch_size=rows)
    llm = make_llm(subject.model, speculation, max_num_seqs=8)
    for count, most in ((1, 5), (3, 2), (6, 0)):
        seen = wanted(llm)
        assert tokens_of(llm, subject.prompts[:count], greedy(10)) == [
            e[:10] for e in subject.expected[:count]
        ]
        assert max(k for _, k in seen[1:5]) == most
    proposer_of(llm)


@pytest.mark.parametrize("name", ["Recorder", "HiddenRecorder"])
def test_a_proposer_rests_while_its_batch_size_allows_no_drafts(subject, name) -> None:
    rows = [[1, 2, 4], [3, 6, 0]]
    speculation = scripted(name, 4, texts=subject.texts, num_speculative_tokens_per_batch_size=rows)
    llm = make_llm(subject.model, speculation)
    seen = wanted(llm)
    # Four requests end together, and two go on: they are told then what was written before, and get drafts.
    params = [greedy(32 if index > 3 else 12) for index in range(6)]
    outputs = llm.generate(subject.prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == [
        e[: p.max_tokens] for e, p in zip(subject.expected, params, strict=True)
    ]
    assert sum(not most for _, most in seen) <= 2, "not in each of 12 steps"
    assert outputs[5].metrics.num_drafts > 0
    assert outputs[5].metrics.num_accepted_tokens > 0
    assert proposer_of(llm).complaints == []


@pytest.mark.parametrize(("speculative", "most"), [(False, 0), (None, 4), ({"num_speculative_tokens": 2}, 2), ({}, 4),
                                                  ({"num_speculative_tokens": 0}, 0),
                                                  ({"num_speculative_tokens": 9}, 4)])  # fmt: skip
def test_speculation_by_request(subject, speculative, most) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 4, texts=subject.texts))
    seen = wanted(llm)
    outputs = llm.generate(subject.prompts[:2], greedy(24, speculative=speculative))
    assert [o.outputs[0].token_ids for o in outputs] == [e[:24] for e in subject.expected[:2]]
    assert max(k for _, k in seen) == most
    assert (outputs[0].metrics.num_drafts > 0) == (most > 0)
    assert proposer_of(llm).complaints == []


def test_requests_with_and_without_speculation_share_a_batch(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 4, texts=subject.texts))
    params = [greedy(32, speculative=False if i % 2 else None) for i in range(6)]
    outputs = llm.generate(subject.prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    assert [o.metrics.num_drafts > 0 for o in outputs] == [True, False] * 3
    assert proposer_of(llm).complaints == []


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 9])
def test_max_tokens_is_never_overrun(subject, k, shape, max_tokens) -> None:
    llm = make_llm(subject.model, scripted("Recorder", k, texts=subject.texts, shape=shape))
    seen = wanted(llm)
    for output, expected in zip(
        llm.generate(subject.prompts, greedy(max_tokens)), subject.expected, strict=True
    ):
        assert output.outputs[0].token_ids == expected[:max_tokens]
        assert output.outputs[0].finish_reason == "length"
    assert max(most for _, most in seen) <= max(0, min(k, max_tokens - 2))
    assert engine_of(llm).metrics.num_emitted_tokens == 6 * max_tokens
    assert proposer_of(llm).complaints == []


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_context_window_is_never_overrun(subject, shape) -> None:
    limit = 70
    for malformed in (0, 2):
        speculation = scripted(
            "Recorder", 8, texts=subject.texts, shape=shape, malformed_every=malformed,
            kinds=("too long", "lifted caps"),
        )  # fmt: skip
        llm = make_llm(subject.model, speculation, max_model_len=limit, block_size=1)
        outputs = llm.generate(subject.prompts, greedy(32))
        for output, prompt, expected in zip(outputs, subject.prompts, subject.expected, strict=True):
            tokens = output.outputs[0].token_ids
            assert tokens == expected[: limit - len(prompt)]
            assert output.outputs[0].finish_reason == "length"
        assert len(outputs[3].outputs[0].token_ids) == limit - 61
        assert proposer_of(llm).complaints == []


def test_max_tokens_none_runs_to_the_window(subject) -> None:
    llm = make_llm(subject.model, max_model_len=40)
    [output] = llm.generate([subject.prompts[0]], greedy(None))
    assert output.outputs[0].token_ids == subject.expected[0][:31]


def test_numbers_of_a_run_whose_course_is_known(subject) -> None:
    """Right drafts of 4: each step emits 5 tokens, 4 of them accepted; the last drafts are cut to what is left."""
    llm = make_llm(subject.model, scripted("Recorder", 4, texts=subject.texts[:1], seed=1))
    proposer = proposer_of(llm)
    proposer._chain = lambda right, count, rng: (right, list(range(-1, len(right) - 1)))
    [output] = llm.generate([subject.prompts[0]], greedy(13))
    # 1 token from the prompt; 12 more: 5 + 5 + (1 drafted, 2 emitted).
    metrics = output.metrics
    assert (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens) == (3, 9, 9)
    assert metrics.accepted_per_position == [3, 2, 2, 2]
    assert metrics.mean_acceptance_length == 1 + 9 / 3
    assert (metrics.num_steps, metrics.tokens_per_step) == (4, 13 / 4)
    assert metrics.acceptance_rate == 1.0
    assert output.outputs[0].is_from_draft == [False, *([True] * 4 + [False]) * 2, True, False]
    totals = {m.name: getattr(m, "value", None) or getattr(m, "values", None) for m in llm.get_metrics()}
    assert totals["vllm:spec_decode_num_drafts"] == 3
    assert totals["vllm:spec_decode_num_draft_tokens"] == 9
    assert totals["vllm:spec_decode_num_accepted_tokens"] == 9
    assert totals["vllm:spec_decode_num_accepted_tokens_per_pos"] == [3, 2, 2, 2]
    assert totals["specdec:num_emitted_tokens"] == 13
    assert totals["specdec:num_steps"] == 4
    assert proposer.feedback[output.request_id] == [(0, 0), (0, 0), (4, 4), (4, 4), (1, 1)]


def test_numbers_of_drafts_that_are_partly_right(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 4, texts=subject.texts[:1]))
    proposer = proposer_of(llm)

    def second_is_wrong(right, count, rng):
        return [t if i != 1 else (t + 1) % 128 for i, t in enumerate(right)], list(range(-1, len(right) - 1))

    proposer._chain = second_is_wrong
    [output] = llm.generate([subject.prompts[0]], greedy(9))
    # 1, then 2 per step: one accepted, one corrected; drafts of 4, 4, 3, 1 and nothing wrong in the last.
    metrics = output.metrics
    assert output.outputs[0].token_ids == subject.expected[0][:9]
    assert (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens) == (
        4,
        4 + 4 + 3 + 1,
        4,
    )
    assert metrics.accepted_per_position == [4, 0, 0, 0]
    assert metrics.mean_acceptance_length == 2.0
    assert metrics.acceptance_rate == 4 / 12
    assert proposer.feedback[output.request_id][-1] == (1, 1)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_tokens_past_a_stop_are_counted_nowhere(subject, shape) -> None:
    expected = subject.expected[0]
    cut = next(i for i in range(3, 20) if expected[i] not in expected[:i])
    llm = make_llm(subject.model, scripted("Recorder", 8, texts=subject.texts[:1], shape=shape))
    [output] = llm.generate([subject.prompts[0]], greedy(32, stop_token_ids=[expected[cut]]))
    assert output.outputs[0].token_ids == expected[: cut + 1]
    from_draft = output.outputs[0].is_from_draft
    assert len(from_draft) == cut + 1
    metrics, totals = output.metrics, engine_of(llm).metrics
    assert sum(from_draft) == metrics.num_accepted_tokens == totals.num_accepted_tokens
    assert sum(totals.accepted_per_position) == totals.num_accepted_tokens
    assert totals.num_emitted_tokens == cut + 1
    assert totals.num_draft_tokens == metrics.num_draft_tokens


class Listener:
    def __init__(self) -> None:
        self.steps = []
        self.requests = []

    @hookimpl
    def specdec_step_finished(self, stats) -> None:
        self.steps.append(stats)

    @hookimpl
    def specdec_request_finished(self, stats) -> None:
        self.requests.append(stats)


def test_observers_see_every_step_and_every_request_aborted_ones_too(subject) -> None:
    from specdec import hooks
    from specdec.engine.observers import Observers

    llm = make_llm(subject.model, scripted("Recorder", 4, texts=subject.texts))
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hooks)
    listener = Listener()
    manager.register(listener)
    engine = engine_of(llm)
    engine._observers = Observers(manager.hook, engine.metrics)
    outputs = llm.generate(subject.prompts[:2], greedy(16))
    stream = llm.stream(subject.prompts[2], greedy(16))
    next(stream)
    stream.close()
    assert len(listener.steps) == engine.metrics.num_steps
    assert sum(s.num_emitted_tokens for s in listener.steps) == engine.metrics.num_emitted_tokens
    assert sum(s.num_accepted_tokens for s in listener.steps) == engine.metrics.num_accepted_tokens
    # All but the last token of each prompt: that one is where decoding starts.
    assert sum(s.num_prompt_tokens for s in listener.steps) == sum(len(p) - 1 for p in subject.prompts[:3])
    assert [r.finish_reason.value for r in listener.requests] == ["length", "length", "abort"]
    by_id = {r.request_id: r for r in listener.requests}
    for output in outputs:
        stats = by_id[output.request_id]
        assert stats.num_output_tokens == 16
        assert stats.num_prompt_tokens == len(output.prompt_token_ids)
        assert stats.num_accepted_tokens == output.metrics.num_accepted_tokens
        assert 0 < stats.time_to_first_token_ms <= stats.total_ms


def test_a_bonus_token_that_a_stop_cut_is_not_in_tokens_per_step(subject) -> None:
    stop = subject.expected[0][3]
    assert stop not in subject.expected[0][:3]
    llm = make_llm(subject.model, scripted("Recorder", 6, texts=subject.texts[:1], seed=1))
    proposer = proposer_of(llm)
    proposer._chain = lambda right, count, rng: (right, list(range(-1, len(right) - 1)))
    [output] = llm.generate([subject.prompts[0]], greedy(13, stop_token_ids=[stop]))
    metrics = output.metrics
    # The first token comes with the prompt, and three of six drafted ones end the text.
    assert output.outputs[0].token_ids == subject.expected[0][:4]
    assert metrics.mean_acceptance_length == 1 + metrics.num_accepted_tokens
    assert (metrics.num_steps, metrics.tokens_per_step) == (2, 2.0)
