"""Who runs next where several clients ask, and who makes way; no token changes by it."""

from __future__ import annotations

import numpy as np
import pytest
from speccheck.engines import engine_of, greedy, make_llm, scripted
from speccheck.models import prompts

from specdec import ConfigError, SamplingParams
from specdec.engine.sequence import Sequence
from specdec.engine.waiting import WaitingQueue


def sample(request: str, client: str | None = None, index: int = 0, priority: int = 0) -> Sequence:
    made = Sequence(
        f"{request}#{index}", np.array([1], np.int32), SamplingParams(), seed=0, sample_index=index, max_num_tokens=4
    )  # fmt: skip
    made.parent_id, made.client, made.priority = request, client, priority
    return made


def order_of(waiting: WaitingQueue, running: list[Sequence], num: int) -> list[str]:
    """Admit a number of samples; they run from then on."""
    names = []
    for _ in range(num):
        sequence = waiting.next(running)
        waiting.remove(sequence)
        running.append(sequence)
        names.append(sequence.request_id)
    return names


def queue_of(*samples: Sequence, has_priorities: bool = False) -> WaitingQueue:
    waiting = WaitingQueue(has_priorities=has_priorities)
    for one in samples:
        waiting.append(one)
    return waiting


def test_without_clients_it_is_first_come_first_served() -> None:
    samples = [sample("a", index=i) for i in range(3)] + [sample("b"), sample("c")]
    waiting = queue_of(*samples)
    assert order_of(waiting, [], 2) == ["a#0", "a#1"]
    waiting.put_back(samples[1])
    assert order_of(waiting, [], 4) == ["a#1", "a#2", "b#0", "c#0"]
    assert waiting.num_samples == 0


def test_each_client_and_each_of_its_requests_has_the_same_share() -> None:
    many = [sample("a", "x", i) for i in range(4)]
    waiting = queue_of(*many, sample("b", "x"), sample("c", "y"), sample("d", "y"))
    assert order_of(waiting, [], 7) == ["a#0", "c#0", "b#0", "d#0", "a#1", "a#2", "a#3"]


def test_a_sample_that_is_put_back_is_next() -> None:
    first = sample("a", "x")
    waiting = queue_of(first, sample("b", "x"), sample("c", "y"))
    assert order_of(waiting, [], 1) == ["a#0"]
    waiting.put_back(first)
    assert order_of(waiting, [], 3) == ["a#0", "c#0", "b#0"]


def test_lower_priorities_go_first_and_are_never_replaced() -> None:
    late, early = sample("a", "x", priority=1), sample("b", "y", priority=-1)
    assert order_of(queue_of(late, early, has_priorities=True), [], 2) == ["b#0", "a#0"]
    assert order_of(queue_of(late, early), [], 2) == ["a#0", "b#0"]
    assert queue_of(has_priorities=True).may_replace(early, late)
    assert not queue_of(has_priorities=True).may_replace(late, early)
    assert not queue_of().may_replace(sample("c"), late)


def test_a_sample_that_left_is_not_there() -> None:
    one, other = sample("a", "x"), sample("b", "y")
    waiting = queue_of(one)
    waiting.remove(other)
    assert waiting.num_samples == 1
    waiting.remove(one)
    waiting.remove(one)
    assert waiting.num_samples == 0


@pytest.mark.parametrize("speculation", [None, scripted("Recorder", 4, shape="chain", wrong=0.2)])
def test_many_samples_make_way_for_who_has_none(subject, speculation) -> None:
    """A request for one token by another client, or by the same one, is not kept waiting until one of many samples ends."""
    config = None if speculation is None else speculation | {"texts": subject.texts}
    llm = make_llm(subject.model, config, max_num_seqs=2)
    engine, input_processor = engine_of(llm), llm._input_processor
    wanted = [o.token_ids for o in llm.generate([subject.prompts[0]], greedy(32))[0].outputs] * 5
    many = greedy(32).model_copy(update={"n": 5})
    engine.add(input_processor.prepare("many", subject.prompts[0], many, is_streaming=False, client="x"))
    for _ in range(3):
        engine.step()
    engine.add(input_processor.prepare("one", subject.prompts[1], greedy(2), is_streaming=False, client="y"))
    engine.add(input_processor.prepare("own", subject.prompts[2], greedy(2), is_streaming=False, client="x"))
    done, steps = {}, 0
    while engine.has_work:
        steps += 1
        for output in engine.step():
            done[output.request_id] = steps, [list(sample.token_ids) for sample in output.outputs]
    assert done["one"][1] == [subject.expected[1][:2]]
    assert done["own"][1] == [subject.expected[2][:2]]
    assert done["many"][1] == wanted
    assert done["one"][0] < 16
    assert done["own"][0] < 16
    assert engine.metrics.num_preemptions >= 1


def test_nobody_makes_way_with_its_only_sample(subject) -> None:
    llm = make_llm(subject.model, max_num_seqs=1)
    engine, ended = engine_of(llm), list[str]()
    for row, client in enumerate(("x", "y")):
        request = llm._input_processor.prepare(
            client, subject.prompts[row], greedy(6), is_streaming=False, client=client
        )
        engine.add(request)
        engine.step()
    while engine.has_work:
        ended += [output.request_id for output in engine.step()]
    assert ended == ["x", "y"]
    assert engine.metrics.num_preemptions == 0


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_of_equals_the_last_one_makes_room(subject, policy: str) -> None:
    keys = {"max_model_len": 64, "block_size": 1, "enable_prefix_caching": False, "max_num_seqs": 3}
    llm = make_llm(subject.model, num_gpu_blocks_override=80, scheduling_policy=policy, **keys)
    engine, ended = engine_of(llm), list[str]()
    for row, prompt in enumerate(prompts([12] * 3, seed=5)):
        engine.add(llm._input_processor.prepare(str(row), prompt, greedy(30), is_streaming=False))
    while engine.has_work:
        ended += [output.request_id for output in engine.step()]
    assert ended == ["0", "1", "2"]
    assert engine.metrics.num_preemptions > 0


def test_the_least_urgent_makes_room(subject) -> None:
    keys = {"max_model_len": 64, "block_size": 1, "enable_prefix_caching": False, "max_num_seqs": 3}
    llm = make_llm(subject.model, num_gpu_blocks_override=80, scheduling_policy="priority", **keys)
    engine, ended = engine_of(llm), list[str]()
    for row, prompt in enumerate(prompts([12] * 3, seed=5)):
        request = llm._input_processor.prepare(
            str(row), prompt, greedy(30), is_streaming=False, priority=2 - row
        )
        engine.add(request)
    while engine.has_work:
        ended += [output.request_id for output in engine.step()]
    assert ended == ["2", "1", "0"]
    assert engine.metrics.num_preemptions > 0


def test_offline_nobody_makes_way(subject) -> None:
    llm = make_llm(subject.model, max_num_seqs=2)
    llm.generate(subject.prompts, greedy(8))
    assert engine_of(llm).metrics.num_preemptions == 0


def test_priorities_need_their_policy(subject) -> None:
    llm = make_llm(subject.model)
    with pytest.raises(ConfigError, match="scheduling_policy='priority'"):
        llm._input_processor.prepare("r", prompts([4])[0], greedy(2), is_streaming=False, priority=1)
    with pytest.raises(ConfigError, match="fcfs, priority"):
        make_llm(subject.model, scheduling_policy="fair")
    llm = make_llm(subject.model, scheduling_policy="priority", max_num_seqs=1)
    engine = engine_of(llm)
    for name, priority in (("late", 5), ("soon", 1), ("now", -1)):
        request = llm._input_processor.prepare(
            name, subject.prompts[0], greedy(2), is_streaming=False, priority=priority
        )
        engine.add(request)
    assert engine.num_waiting_requests == 3
    ended = []
    while engine.has_work:
        ended += [output.request_id for output in engine.step()]
    assert ended == ["now", "soon", "late"]
