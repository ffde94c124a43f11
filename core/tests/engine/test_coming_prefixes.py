"""Requests wait for a prefix that others compute, where that is sooner: tokens, rows that run, order, and who does not wait."""

from __future__ import annotations

import pytest
from speccheck.engines import engine_of, greedy, make_llm, scripted
from speccheck.models import VOCAB

from specdec import SamplingParams
from specdec.engine.kv_manager import _LEAST_PENDING

LEAST = 8
TOKENS = 6
SHARED = [(7 * place + 3) % VOCAB for place in range(21)]
OTHER = [(5 * place + 1) % VOCAB for place in range(18)]
PREFIX = 4 * (len(SHARED) // 4)


def made(subject, speculation=None, **options):
    """An engine with small blocks, where few rows are worth a step."""
    llm = make_llm(subject.model, speculation, block_size=4, **options)
    engine_of(llm)._scheduler._kv._least_pending = LEAST
    return llm


def add(llm, prompts: dict[str, list[int]], params: SamplingParams | None = None) -> None:
    for name, prompt in prompts.items():
        request = llm._input_processor.prepare(name, prompt, params or greedy(TOKENS), is_streaming=False)
        engine_of(llm).add(request)


def running(llm) -> list[str]:
    return [sequence.request_id for sequence in engine_of(llm)._scheduler.running]


def finished(llm) -> dict[str, list[int]]:
    """Run all requests, and return their tokens."""
    done = {}
    while engine_of(llm).has_work:
        done |= {output.request_id: output.outputs[0].token_ids for output in engine_of(llm).step()}
    return done


def alone(subject, prompt: list[int]) -> list[int]:
    return make_llm(subject.model).generate([prompt], greedy(TOKENS))[0].outputs[0].token_ids


@pytest.mark.parametrize("speculates", [False, True])
def test_a_prefix_is_computed_once_and_others_go_ahead(subject, speculates) -> None:
    llm = made(subject, scripted("Scripted", 2, texts=subject.texts) if speculates else None)
    prompts = {
        "first": OTHER[3:],
        "a": SHARED,
        "b": SHARED,
        "c": [*SHARED, 9, 8],
        "other": OTHER,
        "short": SHARED[:LEAST],
    }
    add(llm, prompts)
    engine_of(llm).step()
    assert running(llm) == ["first", "a", "other", "short"]
    assert engine_of(llm).last_step.num_prompt_tokens == len(SHARED) + 2 * len(OTHER) + LEAST - 7
    engine_of(llm).step()
    assert running(llm) == ["first", "a", "other", "short", "b", "c"]
    cached = {s.request_id: s.num_cached_prompt_tokens for s in engine_of(llm)._scheduler.running}
    assert cached == {"first": 0, "a": 0, "other": 0, "short": 0, "b": PREFIX, "c": PREFIX}
    assert finished(llm) == {name: alone(subject, prompt) for name, prompt in prompts.items()}


def test_samples_of_a_request_share_its_prompt(subject) -> None:
    llm = made(subject)
    sampled = SamplingParams(temperature=0.8, seed=3, n=4, max_tokens=TOKENS, ignore_eos=True)
    expected = make_llm(subject.model, enable_prefix_caching=False).generate([SHARED], sampled)
    request = llm._input_processor.prepare("n", SHARED, sampled, is_streaming=False)
    engine_of(llm).add(request)
    num_rows, output = [], None
    while engine_of(llm).has_work:
        output = [*engine_of(llm).step(), output][0]
        num_rows.append(engine_of(llm).last_step.num_prompt_tokens)
    assert [o.token_ids for o in output.outputs] == [o.token_ids for o in expected[0].outputs]
    assert num_rows[:3] == [len(SHARED) - 1, 3 * (len(SHARED) - 1 - PREFIX), 0]


def test_a_request_waits_no_longer_than_the_rows_need(subject) -> None:
    """A long prompt runs in pieces: who shares its beginning runs once that is there, and at once if the other is gone."""
    prompts = {"long": [*SHARED, *OTHER, *SHARED], "short": [*SHARED[:17], 1, 2]}
    for is_aborted in (False, True):
        llm = made(subject, max_num_batched_tokens=20)
        add(llm, prompts)
        engine_of(llm).step()
        assert running(llm) == ["long"]
        if is_aborted:
            engine_of(llm).abort(["long"])
        engine_of(llm).step()
        assert "short" in running(llm) or not is_aborted
        tokens = finished(llm)
        assert tokens["short"] == alone(subject, prompts["short"])


def test_a_prefix_that_is_there_is_not_waited_for(subject) -> None:
    llm = made(subject)
    llm.generate([SHARED], greedy(2))
    add(llm, {"a": [*SHARED, *OTHER], "b": [*SHARED, *OTHER[:3]], "c": [*SHARED, *OTHER[::-1]]})
    engine_of(llm).step()
    assert running(llm) == ["a", "b", "c"]


def waiting_with(subject, params=None, least=LEAST, **options) -> list[str]:
    """Return who runs after the first step of three equal requests."""
    llm = made(subject, **options)
    engine_of(llm)._scheduler._kv._least_pending = least
    add(llm, dict.fromkeys("abc", SHARED), params)
    engine_of(llm).step()
    return running(llm)


def test_who_gains_nothing_does_not_wait(subject) -> None:
    assert waiting_with(subject) == ["a"]
    everyone = ["a", "b", "c"]
    assert waiting_with(subject, enable_prefix_caching=False) == everyone
    assert waiting_with(subject, least=PREFIX + 1) == everyone
    assert waiting_with(subject, greedy(TOKENS, prompt_logprobs=1)) == everyone
    states = scripted("HiddenRecorder", 2, texts=subject.texts)
    assert waiting_with(subject, speculation=states) == everyone
    assert len(SHARED) < _LEAST_PENDING["cpu"] < _LEAST_PENDING["cuda"]


def test_no_more_wait_apart_than_could_run(subject, monkeypatch) -> None:
    llm = made(subject, max_num_seqs=3)
    asked: list[str] = []
    kv = engine_of(llm)._scheduler._kv
    has_pending_prefix = kv.has_pending_prefix
    monkeypatch.setattr(
        kv,
        "has_pending_prefix",
        lambda s, others: asked.append(s.request_id) or has_pending_prefix(s, others),
    )
    names = [str(number) for number in range(30)]
    add(llm, dict.fromkeys(names, SHARED))
    engine_of(llm).step()
    assert asked == names[:3]
    order = []
    while engine_of(llm).has_work:
        order += [output.request_id for output in engine_of(llm).step()]
    assert order == names


def add_of(llm, client: str | None, name: str, prompt: list[int], **keys) -> None:
    request = llm._input_processor.prepare(
        name, prompt, greedy(**{"max_tokens": TOKENS} | keys), is_streaming=False, client=client
    )
    engine_of(llm).add(request)


@pytest.mark.parametrize("is_cached", [False, True])
def test_nobody_waits_for_who_lists_its_prompt(subject, is_cached) -> None:
    """It runs all of its prompt, cached or not, and few rows a step."""
    llm = made(subject)
    if is_cached:
        llm.generate([SHARED], greedy(2))
    add_of(llm, None, "lists", SHARED, prompt_logprobs=-1)
    add_of(llm, None, "a", [*SHARED, 1])
    engine_of(llm).step()
    assert running(llm) == ["lists", "a"]
    assert finished(llm)["a"] == alone(subject, [*SHARED, 1])


def test_nobody_makes_way_for_who_would_wait(subject) -> None:
    """The room for it would be empty until its prefix is there."""
    llm = made(subject, max_num_seqs=3, max_num_batched_tokens=6)
    for name in ("first", "second"):
        add_of(llm, "x", name, OTHER[:2], max_tokens=20)
    engine_of(llm).step()
    add_of(llm, "y", "leader", [*SHARED, *OTHER])
    engine_of(llm).step()
    add_of(llm, "z", "late", [*SHARED, 1])
    for _ in range(2):
        engine_of(llm).step()
        assert running(llm) == ["first", "second", "leader"]
    while "late" not in running(llm):
        engine_of(llm).step()
    assert running(llm) == ["first", "leader", "late"]
    assert finished(llm)["late"] == alone(subject, [*SHARED, 1])


def test_who_waits_keeps_its_turn_among_clients(subject) -> None:
    llm = made(subject, max_num_seqs=2)
    for client, prompt in {"x": SHARED, "y": [*SHARED, 1], "z": OTHER}.items():
        add_of(llm, client, client, prompt, max_tokens=20)
    engine_of(llm).step()
    assert running(llm) == ["x"]
    engine_of(llm).step()
    assert running(llm) == ["x", "y"]


def test_others_leave_who_waits_its_room(subject) -> None:
    """Else it would wait until they end, and not only for its prefix."""
    llm = made(subject, num_gpu_blocks_override=20, max_model_len=64)
    add_of(llm, None, "leader", SHARED, max_tokens=8)
    add_of(llm, None, "late", [*SHARED, 1])
    add_of(llm, None, "large", [*OTHER, *OTHER], max_tokens=20)
    engine_of(llm).step()
    assert running(llm) == ["leader"]
    engine_of(llm).step()
    assert running(llm) == ["leader", "late"]
    done = finished(llm)
    assert done["late"] == alone(subject, [*SHARED, 1])
    assert list(done)[-1] == "large"
