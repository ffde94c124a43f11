"""What the schedule does must not show: chunks, preemption, prefix hits, moves, aborts and samples change no token."""

from __future__ import annotations

import numpy as np
import pytest
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of
from speccheck.models import prompts

from specdec import ConfigError, SamplingParams
from specdec.engine.scheduler import most_logits_rows
from specdec.engine.sequence import Sequence

SPECULATION = {
    "none": None,
    "chain": scripted("Recorder", 4, shape="chain", wrong=0.2),
    "tree": scripted("Recorder", 7, shape="tree", wrong=0.2),
}


@pytest.fixture(params=SPECULATION)
def speculation(request, subject):
    config = SPECULATION[request.param]
    return None if config is None else config | {"texts": subject.texts}


def audit(llm) -> None:
    """Look through the books of the proposer, if there is one."""
    if engine_of(llm).proposer is not None:
        proposer = proposer_of(llm)
        assert proposer.complaints == []
        assert engine_of(llm).metrics.proposer_errors == 0
        assert proposer.held == {}


def bytes_for(llm, num_tokens: int) -> int:
    return num_tokens * llm._built.scorer.runner.bytes_per_token


@pytest.mark.parametrize("budget", [1, 5, 16, 50])
def test_chunked_prompts(subject, speculation, budget) -> None:
    llm = make_llm(subject.model, speculation, max_num_batched_tokens=budget)
    short = 10 if budget == 1 else 32
    assert tokens_of(llm, subject.prompts, greedy(short)) == [e[:short] for e in subject.expected]
    audit(llm)


@pytest.mark.parametrize("num_seqs", [1, 2, 6])
def test_batch_sizes(subject, speculation, num_seqs) -> None:
    llm = make_llm(subject.model, speculation, max_num_seqs=num_seqs)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    audit(llm)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("block_size", [1, 4])
def test_preemption(subject, speculation, caching, block_size) -> None:
    probe = make_llm(subject.model)
    llm = make_llm(
        subject.model,
        speculation,
        block_size=block_size,
        enable_prefix_caching=caching,
        kv_cache_memory_bytes=bytes_for(probe, 176),
        max_num_batched_tokens=24,
    )
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    metrics = engine_of(llm).metrics
    assert metrics.num_preemptions > 0
    audit(llm)
    kv = engine_of(llm)._scheduler._kv
    assert kv.pool.num_free_slots == kv.pool.num_slots


def test_a_sequence_that_cannot_grow_where_it_lies_starts_over(subject) -> None:
    """Alone in the cache, at its end, with too little room in front for a second copy."""
    probe = make_llm(subject.model)
    llm = make_llm(
        subject.model,
        max_model_len=100,
        block_size=1,
        kv_cache_memory_bytes=bytes_for(probe, 101),
        max_num_seqs=2,
    )
    first = prompts([40], seed=5)
    tokens_of(llm, first, greedy(2))
    prompt = subject.prompts[1]
    assert tokens_of(llm, [prompt], greedy(32)) == [subject.expected[1]]
    again = tokens_of(llm, [subject.prompts[3]], greedy(32))
    assert again == [subject.expected[3]]
    assert engine_of(llm).metrics.num_preemptions > 0


def test_prefix_hits(subject, speculation) -> None:
    llm = make_llm(subject.model, speculation, block_size=4)
    for _ in range(3):
        outputs = llm.generate(subject.prompts, greedy(32))
        assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    for output, prompt in zip(outputs, subject.prompts, strict=True):
        assert output.num_cached_tokens == (len(prompt) - 1) // 4 * 4
    audit(llm)


def test_prefix_hits_beyond_one_step_of_tokens(subject) -> None:
    """A prompt that is known beyond the token budget must not spill out of its run."""
    long = prompts([150, 150], seed=2)
    wanted = tokens_of(make_llm(subject.model, enable_prefix_caching=False), long, greedy(8))
    llm = make_llm(subject.model, block_size=1, max_num_batched_tokens=8, max_num_seqs=3)
    for _ in range(2):
        outputs = llm.generate([long[0], long[1], long[0]], greedy(8))
        assert [o.outputs[0].token_ids for o in outputs] == [wanted[0], wanted[1], wanted[0]]
    assert outputs[0].num_cached_tokens == 149


def test_shared_heads_with_different_tails(subject) -> None:
    head = subject.prompts[3]
    many = [[*head[:cut], *tail] for cut in (61, 40, 17) for tail in ([1, 2, 3], [1, 2, 4], [9])]
    wanted = tokens_of(make_llm(subject.model, enable_prefix_caching=False), many, greedy(12))
    llm = make_llm(subject.model, block_size=2, max_num_seqs=3)
    for _ in range(2):
        assert tokens_of(llm, many, greedy(12)) == wanted


def test_samples_of_one_request_are_those_of_requests_of_their_own(subject, speculation) -> None:
    llm = make_llm(subject.model, speculation)
    outputs = llm.generate(subject.prompts[:3], greedy(16, n=3))
    for output, expected in zip(outputs, subject.expected, strict=False):
        assert [c.index for c in output.outputs] == [0, 1, 2]
        assert [c.token_ids for c in output.outputs] == [expected[:16]] * 3
    audit(llm)


@pytest.mark.parametrize("caching", [True, False])
def test_aborting_some_leaves_the_others_alone(subject, speculation, caching) -> None:
    llm = make_llm(subject.model, speculation, enable_prefix_caching=caching, max_num_seqs=4, block_size=4)
    engine, input_processor = engine_of(llm), llm._input_processor
    names = {}
    for index, prompt in enumerate(subject.prompts):
        request = input_processor.prepare(f"r{index}", prompt, greedy(32), is_streaming=False)
        engine.add(request)
        names[f"r{index}"] = index
    if engine.proposer is not None:
        proposer_of(llm)
    done = {}
    step = 0
    while engine.has_work:
        step += 1
        for output in engine.step():
            done[output.request_id] = output
        if step == 3:
            [aborted] = engine.abort(["r1"])
            assert aborted.outputs[0].finish_reason == "abort"
            assert aborted.finished
            assert aborted.outputs[0].token_ids == subject.expected[1][: len(aborted.outputs[0].token_ids)]
        if step == 4:
            engine.abort(["r5", "unknown", "r1"])  # still waiting; unknown; gone
    assert set(done) == {"r0", "r2", "r3", "r4"}
    for name, output in done.items():
        assert output.outputs[0].token_ids == subject.expected[names[name]]
    audit(llm)
    kv = engine._scheduler._kv
    assert kv.pool.num_free_slots == kv.pool.num_slots
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected


def test_every_decoding_request_gets_a_row_of_a_small_budget(subject) -> None:
    """Drafts of the first requests must not starve the last one."""
    speculation = scripted("Scripted", 10, texts=subject.texts[:1])
    llm = make_llm(
        subject.model, speculation, max_num_batched_tokens=11
    )  # room for both prompts, and for one draft
    engine, input_processor = engine_of(llm), llm._input_processor
    for index in (0, 2):
        request = input_processor.prepare(f"r{index}", subject.prompts[index], greedy(32), is_streaming=True)
        engine.add(request)
    counts: dict[str, list[int]] = {"r0": [], "r2": []}
    while engine.has_work:
        outputs = engine.step()
        for output in outputs:
            counts[output.request_id].append(len(output.outputs[0].token_ids))
        waiting = {name for name, lengths in counts.items() if not lengths or lengths[-1] < 32}
        assert waiting <= {output.request_id for output in outputs}
    assert counts["r0"][-1] == counts["r2"][-1] == 32


def test_drafts_leave_room_for_prompts(subject) -> None:
    """Drafts of requests that run would take the whole budget of 40 rows: four times 1 + 9."""
    speculation = scripted("Scripted", 9, texts=subject.texts)
    llm = make_llm(subject.model, speculation, max_num_batched_tokens=40, enable_prefix_caching=False)
    engine, input_processor = engine_of(llm), llm._input_processor
    params = SamplingParams(temperature=1.0, max_tokens=60, ignore_eos=True)  # few drafts are accepted

    def add(name: str, prompt: list[int]) -> None:
        engine.add(input_processor.prepare(name, prompt, params, is_streaming=True))

    for index in range(4):
        add(f"r{index}", subject.prompts[0])
    for _ in range(3):
        engine.step()
    add("late", subject.prompts[3])  # 61 tokens: seven steps at 10 rows
    late = None
    for step in range(9):
        for output in engine.step():
            if output.request_id == "late" and late is None:
                late = step
    assert late is not None
    assert late >= 1  # it does not take everything either


def test_a_budget_below_the_number_of_requests_limits_that_number(subject) -> None:
    llm = make_llm(subject.model, max_num_batched_tokens=3, max_num_seqs=6)
    engine, input_processor = engine_of(llm), llm._input_processor
    for index, prompt in enumerate(subject.prompts):
        engine.add(input_processor.prepare(f"r{index}", prompt, greedy(32), is_streaming=True))
    while engine.has_work:
        engine.step()
        assert len(engine._scheduler.running) <= 3


def test_no_more_samples_run_than_max_num_seqs(subject) -> None:
    llm = make_llm(subject.model, max_num_seqs=2)
    engine, counts = engine_of(llm), set[int]()
    for index, prompt in enumerate(subject.prompts):
        engine.add(llm._input_processor.prepare(f"r{index}", prompt, greedy(4), is_streaming=True))
    while engine.has_work:
        engine.step()
        counts.add(len(engine._scheduler.running))
    assert max(counts) == 2


def test_a_prompt_needs_room_for_its_first_token(subject) -> None:
    scheduler = engine_of(make_llm(subject.model))._scheduler
    num_slots = scheduler._kv.pool.num_slots

    def sample(num_tokens: int) -> Sequence:
        ids = np.zeros(num_tokens, np.int32)
        return Sequence("s", ids, greedy(4), seed=0, sample_index=0, max_num_tokens=num_tokens + 4)

    scheduler.add(sample(num_slots - 1))
    with pytest.raises(ConfigError, match="does not fit into the KV cache"):
        scheduler.add(sample(num_slots))


def test_streams_may_run_side_by_side(subject) -> None:
    llm = make_llm(subject.model)
    first = llm.stream(subject.prompts[0], greedy(12))
    start = [next(first) for _ in range(3)]
    assert [len(o.outputs[0].token_ids) for o in start] == [1, 2, 3]
    second = llm.stream(subject.prompts[1], greedy(12))
    next(second)
    assert tokens_of(llm, [subject.prompts[2]], greedy(8)) == [subject.expected[2][:8]]
    ends = [list(stream)[-1] for stream in (second, first)]
    assert ends[0].outputs[0].token_ids == subject.expected[1][:12]
    assert ends[1].outputs[0].token_ids == subject.expected[0][:12]
    assert all(end.finished for end in ends)


def test_giving_a_stream_up_aborts_it(subject) -> None:
    llm = make_llm(subject.model)
    stream = llm.stream(subject.prompts[0], greedy(32))
    next(stream)
    stream.close()
    assert not engine_of(llm).has_work
    assert tokens_of(llm, subject.prompts[:1], greedy(32)) == subject.expected[:1]


def test_prompts_that_do_not_fit_are_refused_and_cost_nothing(subject) -> None:
    llm = make_llm(subject.model, max_model_len=64)
    for prompt, message in (
        (list(range(64)), "leaves no room"),
        ([], "no tokens"),
        ([128], "outside the vocabulary"),
        ([-1], "outside the vocabulary"),
        ([2**40], "outside the vocabulary"),
    ):
        with pytest.raises(ConfigError, match=message):
            llm.generate([subject.prompts[0], prompt] if prompt else [{"prompt_token_ids": []}], greedy(4))
    assert not engine_of(llm).has_work
    assert tokens_of(llm, [subject.prompts[0]], greedy(4)) == [subject.expected[0][:4]]


def test_sampling_parameters_are_per_request(subject) -> None:
    llm = make_llm(subject.model)
    params = [greedy(3), SamplingParams(temperature=0.8, max_tokens=5, seed=1), greedy(7)]
    outputs = llm.generate(subject.prompts[:3], params)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [3, 5, 7]
    assert outputs[2].outputs[0].token_ids == subject.expected[2][:7]
    with pytest.raises(ConfigError, match="one per prompt"):
        llm.generate(subject.prompts[:3], params[:2])


def test_without_speculation_what_has_ended_is_let_go_of_while_others_run(subject) -> None:
    llm = make_llm(subject.model)
    engine, stream = engine_of(llm), llm.stream(subject.prompts[0], greedy(32))
    next(stream)
    for _ in range(5):
        llm.generate([subject.prompts[1]], greedy(2))
        next(stream)
        assert len(engine._owners) <= 2, "the last one is let go of in the next step"
        assert len(engine._ended) <= 1


def test_an_id_that_runs_is_refused(subject) -> None:
    llm = make_llm(subject.model)
    input_processor, engine = llm._input_processor, engine_of(llm)
    engine.add(input_processor.prepare("x", subject.prompts[0], greedy(2), is_streaming=False))
    with pytest.raises(ConfigError, match="request id 'x' is in use"):
        engine.add(input_processor.prepare("x", subject.prompts[1], greedy(2), is_streaming=False))


def test_a_call_that_is_cut_off_while_requests_end_leaves_nothing_behind(subject, monkeypatch) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 3, texts=subject.texts), max_num_seqs=4)
    engine = engine_of(llm)
    publish = engine._committer._kv.publish

    def cut_off(sequence) -> None:
        if sequence.is_finished:
            raise KeyboardInterrupt
        publish(sequence)

    with monkeypatch.context() as patched:
        patched.setattr(engine._committer._kv, "publish", cut_off)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(subject.prompts, greedy(32))
    assert not engine.has_work
    assert engine.kv_cache_usage == 0
    assert engine._owners == {}
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected


def test_prompts_of_one_call_run_by_priority(subject, monkeypatch) -> None:
    llm = make_llm(subject.model, max_num_seqs=1, scheduling_policy="priority")
    engine, prompts, ended = engine_of(llm), subject.prompts[:3], list[list[int]]()
    step = engine.step

    def noting():
        outputs = step()
        ended.extend(output.prompt_token_ids for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(engine, "step", noting)
    outputs = llm.generate(prompts, greedy(3), priority=[3, 1, 2])
    assert ended == [prompts[1], prompts[2], prompts[0]]
    assert [output.prompt_token_ids for output in outputs] == prompts


def test_logits_of_a_step_are_bounded(subject, monkeypatch) -> None:
    """Prompts whose log probabilities are listed wait for each other; nothing shows, and no step has more rows than memory."""
    monkeypatch.setattr("specdec.engine.scheduler._PROMPT_ROWS", 5)
    monkeypatch.setattr("specdec.engine.scheduler._SPARE_NODES", 0)
    llm = make_llm(
        subject.model,
        scripted("Recorder", 4, shape="chain", wrong=0.2) | {"texts": subject.texts},
        max_num_seqs=3,
    )
    scorer, seen = llm._built.scorer, list[int]()
    score, most = scorer.score, most_logits_rows(3, 4, 2048)
    assert scorer.max_logits_rows == most == 3 * 5 + 5

    def counted(batch):
        scores = score(batch)
        listed = 0 if scores.prompt_logits is None else len(scores.prompt_logits)
        assert listed <= 5
        seen.append(len(scores.logits) + listed)
        return scores

    monkeypatch.setattr(scorer, "score", counted)
    outputs = llm.generate([{"prompt_token_ids": p} for p in subject.prompts], greedy(12, prompt_logprobs=0))
    assert [list(output.outputs[0].token_ids) for output in outputs] == [e[:12] for e in subject.expected]
    assert [len(output.prompt_logprobs) for output in outputs] == [len(p) for p in subject.prompts]
    assert max(seen) <= most
