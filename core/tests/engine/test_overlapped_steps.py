"""Steps that are launched ahead change no text, whatever comes, ends, is aborted or preempted, and wherever."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speccheck.engines import engine_of, letter_tokenizer, make_llm, proposer_of, scripted
from speccheck.hybrids import HYBRIDS, hybrid
from speccheck.models import VOCAB, prompts, tiny

from specdec import LLM, RequestOutput, SamplingParams
from specdec.engine.step import Step
from specdec.interfaces import Capability, Draft, ProposeBatch, Proposer

CONTEXT, BLOCK = 56, 4
PROMPTS = prompts([9, 2, 31, 17, 23, 4], seed=11)
TIGHT = {
    "max_model_len": CONTEXT, "block_size": BLOCK, "num_gpu_blocks_override": 2 * CONTEXT // BLOCK - 3, "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
}  # fmt: skip
"""A cache in which four requests seldom fit."""
METHODS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "chain": scripted("Recorder", 3, shape="chain", wrong=0.2),
    "tree": scripted("Recorder", 6, shape="tree", wrong=0.2),
    "resting": scripted("Recorder", 3, wrong=0.2, disable_by_batch_size=2),
    "states": scripted("HiddenRecorder", 3, wrong=0.2),
    "resting states": scripted("HiddenRecorder", 3, wrong=0.2, disable_by_batch_size=2),
    "late drafts": scripted("Recorder", 3, shape="chain", wrong=0.2, finds=0.3, adaptive=False),
    "adaptive": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1},
}


@dataclass(frozen=True)
class Visit:
    """A request that comes in some step, and may be aborted in another."""

    prompt: int
    params: SamplingParams
    arrival: int
    aborted: int | None
    is_streaming: bool


@st.composite
def visits(draw: st.DrawFn) -> Visit:
    arrival = draw(st.integers(0, 12))
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.8])),
        seed=draw(st.integers(0, 3)),
        max_tokens=draw(st.integers(1, 20)),
        stop_token_ids=draw(st.lists(st.integers(0, VOCAB - 1), max_size=12)),
        stop=draw(st.sampled_from([None, None, ["ab"], ["c", "fl"]])),
        logprobs=draw(st.sampled_from([None, None, 0, 2, 70])),
        prompt_logprobs=draw(st.sampled_from([None, None, None, 1])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, 0.6])),
        ignore_eos=True,
    )
    aborted = draw(st.none() | st.none() | st.integers(arrival + 1, arrival + 12))
    return Visit(draw(st.integers(0, len(PROMPTS) - 1)), params, arrival, aborted, draw(st.booleans()))


@pytest.fixture(scope="module")
def plain() -> LLM:
    return made(None, is_ahead=False)


@pytest.fixture(scope="module", params=METHODS)
def ahead(request: pytest.FixtureRequest, plain: LLM) -> LLM:
    config = METHODS[request.param]
    if config is not None and "texts" in config | {"texts": None} and config["method"] != "ngram":
        outputs = plain.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True))
        texts = [[*p, *o.outputs[0].token_ids] for p, o in zip(PROMPTS, outputs, strict=True)]
        config = config | {"texts": texts, "on_proposer_error": "raise"}
    llm = made(config, is_ahead=True)
    if request.param == "late drafts":
        engine, rng = engine_of(llm), random.Random(0)
        assert engine._late is not None
        engine._late.pays = lambda step: rng.random() < 0.7  # type: ignore[method-assign]
    return llm


def made(config: dict[str, Any] | None, *, is_ahead: bool) -> LLM:
    llm = make_llm(tiny("llama"), config, tokenizer=letter_tokenizer(), async_scheduling=is_ahead, **TIGHT)
    assert engine_of(llm)._is_overlapped == is_ahead
    return llm


def outputs_of(llm: LLM, plan: list[Visit]) -> dict[str, RequestOutput]:
    """Return the last output of every request of a plan; every output continues the one before."""
    engine, last, names = engine_of(llm), dict[str, RequestOutput](), [f"r{row}" for row in range(len(plan))]
    tick = 0
    while engine.has_work or any(visit.arrival >= tick for visit in plan):
        for name, visit in zip(names, plan, strict=True):
            if visit.arrival == tick:
                prompt = {"prompt_token_ids": PROMPTS[visit.prompt]}
                engine.add(
                    llm._input_processor.prepare(name, prompt, visit.params, is_streaming=visit.is_streaming)
                )
        gone = [name for name, visit in zip(names, plan, strict=True) if visit.aborted == tick]
        for output in [*engine.abort(gone), *(engine.step() if engine.has_work else [])]:
            before = last.get(output.request_id)
            assert before is None or not before.finished
            if before is not None:
                tokens = before.outputs[0].token_ids
                assert output.outputs[0].token_ids[: len(tokens)] == tokens
                assert output.outputs[0].text.startswith(before.outputs[0].text)
            last[output.request_id] = output
        tick += 1
    assert all(output.finished for output in last.values())
    return last


def check_nothing_is_left(llm: LLM) -> None:
    llm.generate(
        [PROMPTS[1]], SamplingParams(max_tokens=1)
    )  # one that ended in the last step may wait for another
    engine = engine_of(llm)
    pool = engine._scheduler._kv.pool
    assert engine._owners == {}
    assert engine._ended == []
    assert engine._requests == {}
    assert pool.num_free_slots == pool.num_slots


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=st.lists(visits(), min_size=1, max_size=7))
@pytest.mark.sampled(3, slow=2)
def test_texts_are_those_of_steps_in_order(plan: list[Visit], plain: LLM, ahead: LLM) -> None:
    wanted = plain.generate([PROMPTS[visit.prompt] for visit in plan], [visit.params for visit in plan])
    got = outputs_of(ahead, plan)
    for row, (visit, output) in enumerate(zip(plan, wanted, strict=True)):
        (expected,), found = output.outputs, got.get(f"r{row}")
        if found is None:
            assert visit.aborted is not None
            continue
        (own,) = found.outputs
        size = len(own.token_ids)
        if own.finish_reason == "abort":
            assert visit.aborted is not None
            assert own.token_ids == expected.token_ids[:size]
            continue
        assert own.token_ids == expected.token_ids
        assert own.text == expected.text
        assert (own.finish_reason, own.stop_reason) == (expected.finish_reason, expected.stop_reason)
        check_logprobs(own.logprobs, expected.logprobs)
        check_logprobs(found.prompt_logprobs, output.prompt_logprobs)
    check_nothing_is_left(ahead)
    if hasattr(engine_of(ahead).proposer, "complaints"):
        assert proposer_of(ahead).complaints == []
        assert proposer_of(ahead).held == {}


@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("tick", range(2, 9))
@pytest.mark.sampled(30, slow=50)
def test_an_aborted_request_moves_and_tells_nothing(tick: int, victim: int, plain: LLM, ahead: LLM) -> None:
    """Whatever the step that is launched has of it: nodes of a tree, states, a draft."""
    params = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
    plan = [
        Visit(prompt, params, 0, tick if row == victim else None, row == 1)
        for row, prompt in enumerate((0, 1, 5))
    ]
    wanted = plain.generate([PROMPTS[visit.prompt] for visit in plan], params)
    got = outputs_of(ahead, plan)
    for row, output in enumerate(wanted):
        (expected,), (own,) = output.outputs, got[f"r{row}"].outputs
        assert own.token_ids == expected.token_ids[: len(own.token_ids)]
        assert row == victim or own.finish_reason == "length"
    check_nothing_is_left(ahead)
    assert getattr(engine_of(ahead).proposer, "complaints", []) == []


@pytest.mark.parametrize("victim", range(1, 4))
def test_log_probabilities_of_prompts_stay_with_their_requests(victim: int, plain: LLM, ahead: LLM) -> None:
    """Also if a request is aborted while a step with prompts of several is launched."""
    params = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True)
    listing = params.model_copy(update={"prompt_logprobs": 1})
    prompts_of = (4, 5, 0, 1)
    plan = [Visit(4, params, 0, None, False)]  # it runs when the others come
    plan += [Visit(prompts_of[row], listing, 2, 3 if row == victim else None, False) for row in range(1, 4)]
    wanted = plain.generate([PROMPTS[visit.prompt] for visit in plan], [visit.params for visit in plan])
    got = outputs_of(ahead, plan)
    for row, output in enumerate(wanted):
        if row != victim:
            check_logprobs(got[f"r{row}"].prompt_logprobs, output.prompt_logprobs)
            assert got[f"r{row}"].outputs[0].token_ids == output.outputs[0].token_ids


def test_a_draft_of_a_request_that_left_is_read_before_the_next_step(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its accepted path may move rows, and its verdict is what the next draft on the device begins with."""
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    wanted = plain.generate(PROMPTS[:2], params)
    texts = [[*p, *o.outputs[0].token_ids] for p, o in zip(PROMPTS, wanted, strict=False)]
    llm = made(METHODS["tree"] | {"texts": texts, "adaptive": True}, is_ahead=True)  # type: ignore[operator]
    engine = engine_of(llm)
    launch, followed = engine._launch_before_verdict, list[tuple[bool, bool]]()

    def noting(step: Step) -> Any:
        has_drafts = any(row.num_nodes for row in step.rows)
        following = launch(step)
        followed.append((has_drafts, following is not None))
        return following

    engine._launch_before_verdict = noting  # type: ignore[method-assign]
    alone = params.model_copy(update={"speculative": False})
    for name, prompt, own in (("drafts", PROMPTS[0], params), ("alone", PROMPTS[1], alone)):
        engine.add(llm._input_processor.prepare(name, {"prompt_token_ids": prompt}, own, is_streaming=False))
    for _ in range(3):
        engine.step()
    assert [output.request_id for output in engine.abort(["drafts"])] == ["drafts"]
    outputs = list[RequestOutput]()
    while engine.has_work:
        outputs += engine.step()
    assert [output.outputs[0].token_ids for output in outputs] == [wanted[1].outputs[0].token_ids]
    assert (True, False) in followed
    assert (False, True) in followed
    assert (True, True) not in followed


@pytest.mark.parametrize("tick", [3, 6])
@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_a_step_is_not_lost_if_the_next_one_cannot_be_launched(
    name: str, tick: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers with states could not run it again: the pass that failed has moved these on."""
    model = hybrid(name) if name in HYBRIDS else tiny(name)
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    wanted = make_llm(model, async_scheduling=False).generate(PROMPTS[:2], params)
    engine = engine_of(llm := make_llm(model, async_scheduling=True))
    score, calls = engine._scorer.score, list[int]()

    def failing(*args: Any) -> Any:
        scores = score(*args)
        calls.append(1)
        if len(calls) == tick:
            raise MemoryError("no room for the logits")
        return scores

    monkeypatch.setattr(engine._scorer, "score", failing)
    for row in range(2):
        prompt = {"prompt_token_ids": PROMPTS[row]}
        engine.add(llm._input_processor.prepare(str(row), prompt, params, is_streaming=False))
    done, num_failed = dict[str, list[int]](), 0
    while engine.has_work:
        try:
            done |= {output.request_id: output.outputs[0].token_ids for output in engine.step()}
        except MemoryError:
            num_failed += 1
    assert num_failed == 1
    assert [done["0"], done["1"]] == [output.outputs[0].token_ids for output in wanted]


@pytest.mark.parametrize("tick", [2, 3, 5])
def test_text_is_delivered_if_the_next_step_cannot_be_launched(
    tick: int, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts are launched once the step before is committed; its last piece is not lost, and others are not told."""
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    wanted = plain.generate(PROMPTS[:1], params)[0].outputs[0].token_ids
    config = METHODS["chain"] | {"texts": [[*PROMPTS[0], *wanted]], "on_proposer_error": "raise"}
    engine = engine_of(llm := made(config, is_ahead=True))
    monkeypatch.setattr(engine, "_late", None)  # or drafts would be launched before
    engine._ahead._late = None
    score, calls = engine._scorer.score, list[int]()

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == tick:
            raise MemoryError("no room for the logits")
        return score(*args)

    monkeypatch.setattr(engine._scorer, "score", failing)
    for is_aborted in (False, True):
        calls.clear()
        prompt = {"prompt_token_ids": PROMPTS[0]}
        engine.add(llm._input_processor.prepare("0", prompt, params, is_streaming=True))
        sequence, streamed = engine._requests["0"].sequences[0], list[int]()
        while len(calls) < tick:
            for output in engine.step():
                streamed = output.outputs[0].token_ids
        assert streamed == wanted[: sequence.num_tokens - len(PROMPTS[0])] != []
        if is_aborted:
            engine.abort(["0"])
        else:
            with pytest.raises(MemoryError):
                engine.step()
        while engine.has_work:
            for output in engine.step():
                streamed = output.outputs[0].token_ids
        assert is_aborted or streamed == wanted


def check_logprobs(got: Any, expected: Any) -> None:
    assert (got is None) == (expected is None)
    for ours, theirs in zip(got or [], expected or [], strict=True):
        if theirs is None:
            assert ours is None
            continue
        assert list(ours) == list(theirs)
        assert [p.logprob for p in ours.values()] == pytest.approx(
            [p.logprob for p in theirs.values()], abs=1e-4
        )


@pytest.mark.parametrize("name", ["resting", "resting states"])
def test_a_proposer_that_rests_gets_the_last_tokens_of_what_ends(name: str, plain: LLM) -> None:
    """The first request drafts alone, and ends while the others have it rest: the step after waits until that is told."""
    plan = [
        Visit(prompt, SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True), arrival, None, False)
        for prompt, n, arrival in ((0, 12, 0), (1, 16, 2), (5, 16, 2), (1, 16, 2))
    ]
    wanted = plain.generate([PROMPTS[visit.prompt] for visit in plan], [visit.params for visit in plan])
    answers = [output.outputs[0].token_ids for output in wanted]
    texts = [[*PROMPTS[visit.prompt], *answer] for visit, answer in zip(plan, answers, strict=True)]
    llm = made(METHODS[name] | {"texts": texts, "on_proposer_error": "raise"}, is_ahead=True)  # type: ignore[operator]
    got = outputs_of(llm, plan)
    assert [got[f"r{row}"].outputs[0].token_ids for row in range(4)] == answers
    assert (proposer_of(llm).complaints, proposer_of(llm).held) == ([], {})


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_rules_have_read_every_token_before_the_next(name: str, plain: LLM) -> None:
    few = SamplingParams(temperature=0.0, max_tokens=16, logit_bias={3: 50.0, 4: 50.0, 5: 50.0})
    ruled = few.model_copy(update={name: 2.0})
    prompts_of = PROMPTS[:3]
    wanted, free = ([o.outputs[0].token_ids for o in plain.generate(prompts_of, p)] for p in (ruled, few))
    got = made(None, is_ahead=True).generate(prompts_of, [ruled, few, ruled])
    assert [output.outputs[0].token_ids for output in got] == [wanted[0], free[1], wanted[2]]
    assert wanted[0] != free[0]


def test_the_plans_meet_what_they_are_for(plain: LLM) -> None:
    """Preemption, in a cache as tight as theirs, and steps that follow unread tokens."""
    llm = made(None, is_ahead=True)
    engine = engine_of(llm)
    launch, followed = engine._launch_before_verdict, list[bool]()

    def counting(*args: Any) -> Any:
        following = launch(*args)
        followed.append(following is not None)
        return following

    engine._launch_before_verdict = counting  # type: ignore[method-assign]
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    outputs = llm.generate(PROMPTS, params)
    assert [o.outputs[0].token_ids for o in outputs] == [
        o.outputs[0].token_ids for o in plain.generate(PROMPTS, params)
    ]
    assert engine.metrics.num_preemptions > 0
    assert sum(followed) > 15
    assert not all(followed)


class Failing(Proposer):
    """Reads states, and fails whenever it is asked."""

    name: ClassVar[str] = "failing"
    capabilities = frozenset({Capability.HIDDEN_STATES})

    def propose(self, batch: ProposeBatch) -> Draft:
        raise ValueError("no")


def test_a_pause_ends_while_steps_without_drafts_are_launched_ahead() -> None:
    config = {
        "method": "custom_class",
        "model": f"{__name__}.Failing",
        "num_speculative_tokens": 2,
        "adaptive": False,
    }
    config |= {"disable_by_batch_size": 1}
    llm = make_llm(
        tiny("llama"), config, max_model_len=160, num_gpu_blocks_override=100, async_scheduling=True
    )
    guard = engine_of(llm)._speculation._guard
    llm.generate(PROMPTS[:1], SamplingParams(max_tokens=8, ignore_eos=True))
    assert guard.pause_left > 40
    llm.generate(PROMPTS[:3], SamplingParams(max_tokens=80, ignore_eos=True))
    assert guard.pause_left == 0
