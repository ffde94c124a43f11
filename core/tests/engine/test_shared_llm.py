"""An `LLM` in several threads, in a forked process, and after `shutdown`."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from speccheck.engines import engine_of, greedy, make_llm, scripted

from specdec import EngineError
from specdec.frontend.threads import FairLock

NUM_THREADS = 6


def test_threads_get_what_each_would_get_alone(subject) -> None:
    llm = make_llm(subject.model, scripted(texts=subject.texts, wrong=0.3))
    start = threading.Barrier(NUM_THREADS)

    def work(i: int) -> None:
        start.wait()
        for _ in range(4):
            prompt, expected = subject.prompts[i], subject.expected[i]
            if i % 2:
                *_, last = llm.stream(prompt, greedy(len(expected)))
                assert last.outputs[0].token_ids == expected
                next(iter(llm.stream(prompt, greedy(len(expected)))))  # left early
            else:
                outputs = llm.generate([prompt] * 3, greedy(len(expected)))
                assert [output.outputs[0].token_ids for output in outputs] == [expected] * 3

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        for done in [threads.submit(work, i) for i in range(NUM_THREADS)]:
            done.result()
    assert not engine_of(llm).has_work
    assert not llm._outputs


def test_requests_of_several_threads_share_a_batch(subject) -> None:
    llm = make_llm(subject.model)
    stream = iter(llm.stream(subject.prompts[0], greedy(16)))
    next(stream)
    thread = threading.Thread(target=llm.generate, args=([subject.prompts[1]], greedy(8)))
    thread.start()
    thread.join()  # needs nothing from the stream's reader
    assert [len(output.outputs[0].token_ids) for output in stream] == list(range(2, 17))


def test_a_thread_that_waits_has_the_next_turn() -> None:
    turns, order = FairLock(), []

    def wait() -> None:
        with turns.take():
            order.append("waited")

    waiting = threading.Thread(target=wait)
    with turns.take():
        waiting.start()
        until = time.monotonic() + 30
        while not turns._next.locked():
            assert time.monotonic() < until, "nobody is next"
            time.sleep(0.001)
    with turns.take():
        order.append("came back at once")
    waiting.join()
    assert order == ["waited", "came back at once"]


def test_a_call_from_inside_a_step_is_refused(subject) -> None:
    llm = make_llm(subject.model)
    raised = []

    def processor(output_ids, logits):
        with pytest.raises(EngineError, match="from inside one of its own steps") as error:
            llm.generate([subject.prompts[1]], greedy(1))
        raised.append(error)
        return logits

    [output] = llm.generate([subject.prompts[0]], greedy(2, logits_processors=[processor]))
    assert output.outputs[0].token_ids == subject.expected[0][:2]
    assert len(raised) == 2


@pytest.mark.slow
def test_a_stream_that_is_collected_in_a_step_ends_after_it(subject) -> None:
    llm = make_llm(subject.model)
    held = [llm.stream(subject.prompts[1], greedy(30))]
    next(held[0])

    def processor(output_ids, logits):
        held.clear()
        gc.collect()
        return logits

    [output] = llm.generate([subject.prompts[0]], greedy(4, logits_processors=[processor]))
    assert output.outputs[0].token_ids == subject.expected[0][:4]
    assert not engine_of(llm).has_work


def test_a_call_that_runs_ends_with_the_next_step_after_a_shutdown(subject) -> None:
    llm, num_calls = make_llm(subject.model), 0

    def processor(token_ids, logits):
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            llm.shutdown()
        return logits

    with pytest.raises(EngineError, match="this LLM has been shut down"):
        llm.generate([subject.prompts[0]], greedy(16, logits_processors=[processor]))
    assert num_calls == 3


def test_after_shutdown_every_use_says_so(subject) -> None:
    llm = make_llm(subject.model)
    stream = llm.stream(subject.prompts[0], greedy(8))
    next(stream)
    llm.shutdown()
    for use in (
        lambda: llm.generate(subject.prompts, greedy(2)),
        lambda: next(llm.stream(subject.prompts[0], greedy(2))),
        lambda: next(stream),
        llm.get_tokenizer,
        llm.get_metrics,
        lambda: llm.method,
        lambda: llm.sampler,
        lambda: llm.last_step,
    ):
        with pytest.raises(EngineError, match="this LLM has been shut down: make a new one"):
            use()
    llm.shutdown()


FORKED = """
import asyncio, os, sys
from specdec import AsyncLLM, LLM, SamplingParams
params = SamplingParams(max_tokens=3, temperature=0)
llm, other = LLM("zoo", dtype="float32"), AsyncLLM("zoo", dtype="float32")
llm.get_tokenizer().chat_template = other.get_tokenizer().chat_template = "{{ messages[0].content }}"
llm.generate("def", params)
stream, begun = llm.stream("def", params), other.generate("def", params)
next(stream)
messages = [{"role": "user", "content": "def"}]
uses = {
    "generate": lambda: llm.generate("def", params),
    "chat": lambda: llm.chat(messages, params),
    "stream": lambda: next(llm.stream("def", params)),
    "open stream": lambda: next(stream),
    "a new LLM": lambda: LLM("zoo"),
    "a new AsyncLLM": lambda: AsyncLLM("zoo"),
    "async generate": lambda: other.generate("def", params),
    "async begun": lambda: asyncio.run(anext(begun)),
    "async chat": lambda: other.chat(messages, params),
    "async abort": lambda: asyncio.run(other.abort("a")),
    "async shutdown": other.shutdown,
}
child = os.fork()
if not child:
    for name, use in uses.items():
        try:
            use()
            print(name, "ran", flush=True)
        except BaseException as error:
            print(name, type(error).__name__, str(error).split(":")[0], flush=True)
    stream.close()
    llm.shutdown()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), child, flush=True)
print(len(list(stream)), llm.generate("def", params)[0].outputs[0].token_ids != [])
other.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_in_a_forked_process_every_use_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    *told, ended, after = done.stdout.splitlines()
    code, child = ended.split()
    assert code == "7", done.stdout
    assert after == "2 True"
    assert len(told) == 11
    for line in told:
        assert f" EngineError process {child} is a fork of process " in line, line
