"""Steps that are launched before the tokens of the step before are read: the order of what the device is asked for, and texts.

The pretend device keeps what it copies to the host back until the host waits for it, so that numbers read before are wrong.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch
from pretend import Counts, PretendDevice
from pretend.requests import METHODS, text_ids
from speccheck.engines import scripted

from specdec import LLM, RequestOutput, SamplingParams
from specdec.engine import ProposerGuard
from specdec.engine.late_drafts import LateDrafts
from specdec.interfaces import ProposeBatch

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 96, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip
NUM_TOKENS, MANY = 14, 70
KINDS = {
    "greedy": [{"temperature": 0.0}],
    "sampled": [{"temperature": 0.8, "top_p": 0.9, "logprobs": 2}, {"temperature": 0.0, "logprobs": 0}, {"temperature": 1.1}],
}  # fmt: skip


def params(kind: str, **keys: object) -> list[SamplingParams]:
    many = [*KINDS[kind] * 3][:3]
    return [
        SamplingParams(**{"seed": row, "max_tokens": NUM_TOKENS, "ignore_eos": True} | each | keys)
        for row, each in enumerate(many)
    ]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    ids = text_ids()
    return [ids[:-row] for row in range(1, 4)]


@pytest.fixture(scope="module")
def expected(prompts) -> dict[str, list[RequestOutput]]:
    """What the CPU answers, one step after the other."""
    llm = LLM("zoo", device="cpu", async_scheduling=False, **OPTIONS)
    outputs = {kind: llm.generate(prompts, params(kind)) for kind in KINDS}
    outputs["many"] = llm.generate(prompts, params("greedy", logprobs=MANY))
    llm.shutdown()
    return outputs


@pytest.fixture(scope="module")
def plain(device: PretendDevice) -> LLM:
    llm = LLM("zoo", device="cuda:0", **OPTIONS)
    assert llm._built.engine._is_overlapped, "it is the default on devices"
    return llm


def counted(llm: LLM, device: PretendDevice, prompts: list[list[int]], given: list[SamplingParams]):
    """Return the outputs of a generation, and what each step asked for."""
    engine, steps = llm._built.engine, list[Counts]()
    step = type(engine).step

    def counting() -> list[RequestOutput]:
        device.counted()
        outputs = step(engine)
        steps.append(device.counted())
        return outputs

    engine.step = counting
    try:
        return llm.generate(prompts, given), steps
    finally:
        del engine.step


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_runs_before_the_tokens_of_the_last_are_waited_for(
    kind, plain, device, prompts, expected
) -> None:
    outputs, steps = counted(plain, device, prompts, params(kind))
    assert tokens(outputs) == tokens(expected[kind])
    for output, wanted in zip(outputs, expected[kind], strict=True):
        for ours, theirs in zip(
            output.outputs[0].logprobs or [], wanted.outputs[0].logprobs or [], strict=True
        ):
            assert list(ours) == list(theirs)
            assert [p.logprob for p in ours.values()] == pytest.approx(
                [p.logprob for p in theirs.values()], abs=1e-3
            )
    assert len(steps) == NUM_TOKENS
    first, *settled, last = steps
    assert (first.replays, first.copies_in) >= (1, 2), "the prompts, and the step after them"
    for step in settled:
        assert step.replays == 1
        assert step.ahead == step.launches, "all of them before the host waits for the last step"
        assert (step.synchronisations, step.copies_in, step.copies_out) == (1, 1, 1)
    assert (last.launches, last.synchronisations, last.copies_in, last.copies_out) == (0, 1, 0, 0)


def test_steps_whose_logits_are_read_later_wait(plain, device, prompts, expected) -> None:
    """Log probabilities of more ids than are read with the tokens: the next pass would overwrite the logits."""
    outputs, steps = counted(plain, device, prompts, params("greedy", logprobs=MANY))
    assert tokens(outputs) == tokens(expected["greedy"])
    for output, wanted in zip(outputs, expected["many"], strict=True):
        for ours, theirs in zip(output.outputs[0].logprobs, wanted.outputs[0].logprobs, strict=True):
            assert {i: p.logprob for i, p in ours.items()} == pytest.approx(
                {i: p.logprob for i, p in theirs.items()}, abs=1e-3
            )
    assert not any(step.ahead for step in steps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", range(1, NUM_TOKENS))
@pytest.mark.sampled(4, slow=4)
def test_a_request_that_stops_leaves_the_step_that_is_launched(
    kind, end, plain, device, prompts, expected
) -> None:
    wanted = tokens(expected[kind])
    given = params(kind)
    stop = wanted[1][end]
    end = wanted[1].index(stop) + 1
    given[1] = given[1].model_copy(update={"stop_token_ids": [stop]})
    outputs, steps = counted(plain, device, prompts, given)
    assert tokens(outputs) == [wanted[0], wanted[1][:end], wanted[2]]
    assert outputs[1].outputs[0].stop_reason == stop
    assert max(step.synchronisations for step in steps) == 1, max(
        steps, key=lambda s: s.synchronisations
    ).listed()
    assert sum(step.ahead > 0 for step in steps) == NUM_TOKENS - 1, "nobody waits for the one that stops"


@pytest.mark.parametrize("end", range(1, 8))
def test_requests_end_by_their_length_come_and_are_aborted(end, plain, device, prompts, expected) -> None:
    wanted, engine = tokens(expected["sampled"]), plain._built.engine
    given = params("sampled")
    given[0] = given[0].model_copy(update={"max_tokens": end})
    names = [f"{end}-{row}" for row in range(3)]
    done: dict[str, RequestOutput] = {}
    for tick in range(3 * NUM_TOKENS):
        if tick in (0, 2, 5):
            row = (0, 2, 5).index(tick)
            prompt = {"prompt_token_ids": prompts[row]}
            engine.add(plain._input_processor.prepare(names[row], prompt, given[row], is_streaming=False))
        aborted = engine.abort([names[2]]) if tick == 5 + end else []
        done |= {o.request_id: o for o in [*aborted, *(engine.step() if engine.has_work else [])]}
    assert done[names[0]].outputs[0].token_ids == wanted[0][:end]
    assert done[names[1]].outputs[0].token_ids == wanted[1]
    kept = done[names[2]].outputs[0].token_ids
    assert len(kept) in (end - 1, end), "a request may come in the step after the one that is launched"
    assert kept == wanted[2][: len(kept)]


@pytest.fixture
def calls(monkeypatch) -> list[ProposeBatch]:
    """What proposers are given."""
    propose, batches = ProposerGuard.propose, list[ProposeBatch]()
    monkeypatch.setattr(
        ProposerGuard,
        "propose",
        lambda self, batch, *most, **keys: batches.append(batch) or propose(self, batch, *most, **keys),
    )
    return batches


@pytest.mark.parametrize("method", [pytest.param("eagle3", marks=pytest.mark.full), "eagle3-tree"])
@pytest.mark.slow
def test_steps_of_a_head_that_rests_are_ahead_and_it_misses_no_states(
    method, device, prompts, expected, calls
) -> None:
    """Three requests are too many for it; the two that are left are not, and then it gets the states of all steps."""
    config, wanted, given = METHODS[method], tokens(expected["greedy"]), params("greedy")
    assert config is not None
    delivered, end = [], 6
    given[0] = given[0].model_copy(update={"max_tokens": end})
    for is_ahead in (False, True):
        options = OPTIONS | {"async_scheduling": is_ahead}
        suspended = config | {"adaptive": False, "disable_by_batch_size": 2, "on_proposer_error": "raise"}
        llm = LLM("zoo", device="cuda:0", speculative_config=suspended, **options)
        calls.clear()
        outputs, steps = counted(llm, device, prompts, given)
        assert tokens(outputs) == [wanted[0][:end], *wanted[1:]]
        assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0
        assert [step.ahead >= step.launches for step in steps[2:5]] == [is_ahead] * 3
        first = next(batch for batch in calls if any(batch.max_nodes))
        delivered.append([state.held for state in (first.hidden_states, *first.aux_hidden_states)])
        assert first.counts[:2] == [len(prompts[1]) + 6, len(prompts[2]) + 6]
        num_rows = sum(first.counts[:2])
        llm.shutdown()
    for ours, theirs in zip(*delivered, strict=True):
        assert torch.allclose(ours[:num_rows], theirs[:num_rows], atol=1e-4)


@pytest.mark.parametrize("sampler", ["probabilistic", pytest.param("block", marks=pytest.mark.full)])
@pytest.mark.slow
def test_steps_of_samplers_that_compare_p_and_q_are_ahead_too(sampler: str, device, prompts) -> None:
    suspended = METHODS["draft_model"] | {
        "adaptive": False,
        "disable_by_batch_size": 1,
        "on_proposer_error": "raise",
    }
    suspended |= {"rejection_sample_method": sampler}
    found = []
    for is_ahead in (False, True):
        options = OPTIONS | {"async_scheduling": is_ahead}
        llm = LLM("zoo", device="cuda:0", speculative_config=suspended, **options)
        outputs, steps = counted(llm, device, prompts, params("sampled"))
        llm.shutdown()
        found.append([(o.outputs[0].token_ids, o.outputs[0].logprobs) for o in outputs])
        assert [step.ahead >= step.launches for step in steps[2:8]] == [is_ahead] * 6
        assert {step.synchronisations for step in steps} == {1}
    assert found[0] == found[1]


@pytest.mark.slow
def test_states_stay_whole_if_a_request_that_needs_its_tokens_is_aborted(
    device, prompts, expected, calls
) -> None:
    """Its penalties keep steps from being ahead until it is gone, while another step is launched already."""
    found = []
    given = params("greedy", repetition_penalty=1.0)
    given[2] = given[2].model_copy(update={"repetition_penalty": 1.2})
    suspended = METHODS["eagle3"] | {"adaptive": False, "disable_by_batch_size": 1}
    for is_ahead in (False, True):
        llm = LLM(
            "zoo", device="cuda:0", speculative_config=suspended, **OPTIONS | {"async_scheduling": is_ahead}
        )
        engine, names = llm._built.engine, ["0", "1", "2"]
        for name, prompt, own in zip(names, prompts, given, strict=True):
            engine.add(
                llm._input_processor.prepare(name, {"prompt_token_ids": prompt}, own, is_streaming=False)
            )
        calls.clear()
        for tick in range(3 * NUM_TOKENS):
            engine.abort(names[2:] if tick == 4 else [])
            if tick == 9:
                engine.abort(names[1:2])
            if engine.has_work:
                engine.step()
        first = next(batch for batch in calls if any(batch.max_nodes))
        found.append(first.hidden_states.held[: len(prompts[0]) + 8])
        llm.shutdown()
    assert torch.allclose(*found, atol=1e-4)


def test_a_proposer_that_finds_nothing_is_asked_while_the_next_step_runs(
    device, prompts, expected, calls, monkeypatch
) -> None:
    monkeypatch.setattr(LateDrafts, "pays", lambda self, step: True)
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 9, "adaptive": False}
    config |= {"prompt_lookup_max": 9}
    llm = LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)
    outputs, steps = counted(llm, device, prompts, params("greedy"))
    llm.shutdown()
    assert tokens(outputs) == tokens(expected["greedy"])
    assert sum(output.metrics.num_draft_tokens for output in outputs) == 0, "or this tests something else"
    for step in steps[2:-1]:
        assert step.ahead == step.launches > 0
        assert (step.synchronisations, step.copies_in, step.copies_out) == (1, 1, 1)
    late = [batch for batch in calls if batch.counts == [1, 1, 1]]
    assert len(late) >= NUM_TOKENS - 3, "it is asked after every token"
    assert all(min(batch.max_nodes) > 0 for batch in late[:-3])


COPYING: list[dict[str, Any]] = [
    {"method": name, "num_speculative_tokens": 3} for name in ("ngram", "suffix")
]


@pytest.mark.parametrize(
    "method",
    [*COPYING, {"method": "composite", "policy": "longest", "proposers": COPYING}],
    ids=lambda config: config["method"],
)
@pytest.mark.sampled(0, slow=1)
def test_late_drafts_follow_each_other(
    method: dict[str, Any], plain, device, prompts, expected, calls, monkeypatch
) -> None:
    """Every step with a draft is launched before the verdict on the last one is read, and copied text is accepted."""
    texts = [prompts[row] + tokens(expected["greedy"])[row] for row in range(3)]
    given = [SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)] * 3
    wanted, _ = counted(plain, device, texts, given)
    accepted, config = list[int](), method | {"adaptive": False, "on_proposer_error": "raise"}
    for is_late in (False, True):
        monkeypatch.setattr(LateDrafts, "pays", lambda self, step, is_late=is_late: is_late)
        llm = LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)
        calls.clear()
        outputs, steps = counted(llm, device, texts, given)
        llm.shutdown()
        assert tokens(outputs) == tokens(wanted)
        accepted.append(sum(output.metrics.num_accepted_tokens for output in outputs))
        ends = [batch.starts[0] + batch.counts[0] for batch in calls]
        assert ends == [batch.num_tokens[0] for batch in calls], "it is told of every token"
        if is_late:
            settled = [step for step in steps[2:] if step.ahead > 0]
            assert len(settled) >= max(5, len(steps) - 6), "the last drafts end where texts do, and wait"
            assert {(step.synchronisations, step.copies_out) for step in settled} == {(1, 1)}
    assert accepted[True] > 0
    assert accepted[True] > accepted[False] // 2


@pytest.mark.parametrize("method", ["ngram", "eagle3", "eagle3-tree"])
@pytest.mark.sampled(1, slow=0)
def test_with_drafts_a_step_runs_while_text_is_made_of_the_last(
    method, device, prompts, expected, monkeypatch
) -> None:
    config = METHODS[method]
    assert config is not None
    monkeypatch.setattr(LateDrafts, "pays", lambda self, step: False)
    llm = LLM("zoo", device="cuda:0", speculative_config=config | {"adaptive": False}, **OPTIONS)
    engine = llm._built.engine
    assert engine._is_overlapped
    kind = type(engine)
    launch, show, order = kind._launch, kind._show, list[str]()

    def launching(self, *args):
        order.append("launch")
        return launch(self, *args)

    def showing(self, *args):
        order.append("show")
        return show(self, *args)

    monkeypatch.setattr(kind, "_launch", launching)
    monkeypatch.setattr(kind, "_show", showing)
    outputs, steps = counted(llm, device, prompts, params("greedy"))
    assert tokens(outputs) == tokens(expected["greedy"])
    assert max(step.synchronisations for step in steps) == 1
    assert order[:9] == ["launch", "launch", *["show", "launch"] * 3, "show"]
    assert order[-1] == "show"
    assert order.count("launch") == order.count("show"), "nothing follows the last step"
    llm.shutdown()


@pytest.mark.slow
def test_late_drafts_behind_trees_find_the_accepted_paths_in_the_cache(
    plain, device, prompts, monkeypatch
) -> None:
    """A tree that was drafted in time may have accepted nodes behind rejected siblings."""
    given = [SamplingParams(temperature=0.8, seed=row, max_tokens=40, ignore_eos=True) for row in range(3)]
    wanted, _ = counted(plain, device, prompts, given)
    texts = [[*prompt, *text] for prompt, text in zip(prompts, tokens(wanted), strict=True)]
    turns, late_behind = cycle([True, False, False]), list[bool]()
    draft = LateDrafts.draft

    def drafting(self, step, last):
        late_behind.append(any(row.parents is not None for row in last.rows))
        return draft(self, step, last)

    monkeypatch.setattr(LateDrafts, "pays", lambda self, step: next(turns))
    monkeypatch.setattr(LateDrafts, "draft", drafting)
    config = scripted("Scripted", 6, shape="tree", wrong=0.4, texts=texts, adaptive=False)
    llm = LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)
    outputs, _ = counted(llm, device, prompts, given)
    llm.shutdown()
    assert tokens(outputs) == tokens(wanted)
    assert any(late_behind), "or this tests something else"
