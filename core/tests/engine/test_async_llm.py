"""The asynchronous front: streams, abort, errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from speccheck.engines import scripted

from specdec import AsyncLLM, ConfigError, EngineError, SamplingParams
from specdec.frontend.async_llm import _Subscriber
from specdec.outputs import RequestOutput

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
SHORT = SamplingParams(temperature=0.0, max_tokens=2)


@pytest.fixture
def llm(subject) -> Iterator[AsyncLLM]:
    engine = AsyncLLM(subject.model, skip_tokenizer_init=True)
    yield engine
    engine.shutdown()


def test_a_closed_loop_is_no_error_of_the_engine():
    async def subscribe() -> _Subscriber:
        return _Subscriber()

    subscriber = asyncio.run(subscribe())  # its loop is closed afterwards
    subscriber.put(RuntimeError("nobody reads it"))


async def collect(llm: AsyncLLM, prompt: list[int], request_id: str | None = None) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, GREEDY, request_id)]


def test_concurrent_requests_stream_the_tokens_of_plain_decoding(llm, subject):
    async def run() -> list[list[RequestOutput]]:
        return await asyncio.gather(*(collect(llm, prompt) for prompt in subject.prompts))

    for outputs, expected in zip(asyncio.run(run()), subject.expected, strict=True):
        grown = [len(output.outputs[0].token_ids) for output in outputs]
        assert grown == list(range(1, 25))
        assert outputs[-1].outputs[0].token_ids == expected[:24]
        assert [output.finished for output in outputs] == [False] * 23 + [True]
        assert outputs[-1].outputs[0].finish_reason == "length"


def test_abort_ends_one_request_and_leaves_the_others(llm, subject):
    async def run() -> tuple[RequestOutput, list[RequestOutput]]:
        other = asyncio.create_task(collect(llm, subject.prompts[1]))
        long = SamplingParams(temperature=0.0, max_tokens=140)  # the abort must come in time
        async for output in llm.generate(subject.prompts[0], long, "doomed"):
            if len(output.outputs[0].token_ids) == 3:
                await llm.abort("doomed")
        return output, await other

    last, other = asyncio.run(run())
    assert last.finished
    assert last.outputs[0].finish_reason == "abort"
    count = min(len(last.outputs[0].token_ids), len(subject.expected[0]))
    assert last.outputs[0].token_ids[:count] == subject.expected[0][:count]
    assert other[-1].outputs[0].token_ids == subject.expected[1][:24]


def test_leaving_a_stream_early_aborts_its_request(llm, subject):
    async def run() -> bool:
        stream = llm.generate(subject.prompts[0], SamplingParams(temperature=0.0, max_tokens=100), "left")
        await anext(stream)
        await stream.aclose()
        await collect(llm, subject.prompts[1])
        return llm._built.engine.has_work

    assert not asyncio.run(run())


def test_an_id_in_use_is_refused_and_harms_nobody(llm, subject):
    async def run() -> list[RequestOutput]:
        gate = threading.Event()
        llm._order(gate.wait)  # or the first could end before the second is there
        first, second = (asyncio.create_task(collect(llm, subject.prompts[i], "same")) for i in (0, 1))
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(ValueError, match="'same' is in use"):
            await second
        return await first

    assert asyncio.run(run())[-1].outputs[0].token_ids == subject.expected[0][:24]


def test_a_prompt_that_cannot_be_served_raises_where_it_was_given(llm):
    with pytest.raises(ConfigError, match="no tokens"):
        asyncio.run(collect(llm, []))


def test_after_shutdown_every_call_says_so(subject):
    llm = AsyncLLM(subject.model, skip_tokenizer_init=True)
    llm.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        asyncio.run(collect(llm, subject.prompts[0]))


@pytest.mark.parametrize("speculates", [False, True])
def test_an_id_may_come_again_while_others_run(subject, speculates):
    """Also when its last tokens are still to be told; and nothing of it is kept afterwards."""
    speculation = scripted("Recorder", 3, texts=subject.texts) if speculates else None
    llm = AsyncLLM(subject.model, speculative_config=speculation, skip_tokenizer_init=True)

    async def run() -> list[RequestOutput]:
        long = asyncio.create_task(collect(llm, subject.prompts[0], "long"))
        await asyncio.sleep(0)
        for _ in range(4):
            async for output in llm.generate(subject.prompts[1], SHORT, "again"):
                assert output.request_id == "again"
            assert output.outputs[0].token_ids == subject.expected[1][:2]
        assert len(llm._built.engine._ended) <= 1
        return await long

    assert asyncio.run(run())[-1].outputs[0].token_ids == subject.expected[0][:24]
    engine = llm._built.engine
    llm.shutdown()
    for kept in (engine._ended, engine._owners, engine._row_ids):
        assert not kept
    if engine.proposer is not None:
        assert engine.proposer.complaints == []
        assert engine.proposer.held == {}
        assert engine.metrics.proposer_errors == 0


def test_ids_that_look_like_those_of_samples_meet_nobody(llm, subject):
    async def run() -> list[RequestOutput]:
        two = SamplingParams(temperature=0.0, max_tokens=24, n=2)
        several = [
            llm.generate(subject.prompts[0], two, "a"),
            llm.generate(subject.prompts[1], GREEDY, "a#0"),
        ]
        return await asyncio.gather(*(last(stream) for stream in several))

    async def last(stream: AsyncIterator[RequestOutput]) -> RequestOutput:
        return [output async for output in stream][-1]

    first, second = asyncio.run(run())
    assert [sample.token_ids for sample in first.outputs] == [subject.expected[0][:24]] * 2
    assert second.outputs[0].token_ids == subject.expected[1][:24]


def test_a_shutdown_ends_open_streams_with_what_it_is(subject):
    llm = AsyncLLM(subject.model, skip_tokenizer_init=True)

    async def run() -> None:
        stream = llm.generate(subject.prompts[0], SamplingParams(temperature=0.0, max_tokens=100))
        await anext(stream)
        llm.shutdown()
        await stream.aclose()

    asyncio.run(run())


def test_a_failure_reaches_everybody_who_waits(subject, monkeypatch, caplog):
    llm = AsyncLLM(subject.model, skip_tokenizer_init=True)
    engine = llm._built.engine
    real, added = engine.add, []

    def add(request):
        added.append(request)
        if len(added) == 2:
            raise KeyError("boom")
        real(request)

    monkeypatch.setattr(engine, "add", add)

    async def run() -> list[BaseException | list[RequestOutput]]:
        gate = threading.Event()
        llm._order(gate.wait)  # or the first could end before the others are there
        tasks = [asyncio.create_task(collect(llm, prompt)) for prompt in subject.prompts[:3]]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(asyncio.wait_for(run(), 30))
    assert all(isinstance(error, EngineError) for error in found)
    assert all("the engine failed: KeyError: 'boom'" in str(error) for error in found)
    assert isinstance(found[0].__cause__, KeyError)
    with pytest.raises(EngineError, match="boom"):
        asyncio.run(collect(llm, subject.prompts[0]))
    assert not llm.is_running
    assert llm.num_requests == (0, 0)
    assert "the engine failed" in caplog.text
    llm.shutdown()


def test_leaving_a_request_whose_id_was_taken_leaves_the_other_alone(llm, subject):
    async def run() -> list[RequestOutput]:
        gate = threading.Event()
        llm._order(gate.wait)
        first = asyncio.create_task(collect(llm, subject.prompts[0], "same"))
        await asyncio.sleep(0)
        second = asyncio.create_task(collect(llm, subject.prompts[1], "same"))
        await asyncio.sleep(0)
        second.cancel()  # before it has heard that it is refused
        await asyncio.sleep(0)
        gate.set()
        return await first

    last = asyncio.run(run())[-1].outputs[0]
    assert (last.finish_reason, last.token_ids) == ("length", subject.expected[0][:24])
