"""`AsyncLLM` beyond plain token ids: conversations, whole answers, and on which thread it works."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from specdec import LLM, AsyncLLM, ConfigError, SamplingParams
from specdec.outputs import RequestOutput

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
)
TEMPLATE += "<{{ message.role }}>{{ message.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
MESSAGES = [{"role": "user", "content": "def main("}]
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=12)


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    engine = AsyncLLM("zoo", dtype="float32")
    engine.get_tokenizer().chat_template = TEMPLATE
    yield engine
    engine.shutdown()


async def collect(stream) -> list[RequestOutput]:
    return [output async for output in stream]


def test_a_conversation_is_answered_as_by_llm(llm):
    plain = LLM("zoo", dtype="float32")
    plain.get_tokenizer().chat_template = TEMPLATE
    expected = plain.chat(MESSAGES, PARAMS)[0]
    outputs = asyncio.run(collect(llm.chat(MESSAGES, PARAMS)))
    assert outputs[-1].outputs[0].text == expected.outputs[0].text
    assert outputs[-1].prompt == expected.prompt == "<user>def main(<assistant>"
    assert outputs[-1].prompt_token_ids == llm.chat_prompt(MESSAGES)["prompt_token_ids"]
    assert len(outputs) == 12


def test_an_answer_may_come_whole(llm):
    (output,) = asyncio.run(
        collect(llm.chat(MESSAGES, PARAMS, is_streaming=False, add_generation_prompt=False))
    )
    assert output.finished
    assert output.prompt == "<user>def main("
    assert len(output.outputs[0].token_ids) == 12


def test_what_cannot_be_served_raises_before_anything_is_queued(llm):
    with pytest.raises(ConfigError, match="no tokens"):
        llm.generate([])
    with pytest.raises(ConfigError, match="no tools"):
        llm.chat([{"role": "tool", "content": "x"}])
    with pytest.raises(ConfigError, match="no tools"):
        LLM.chat(_Front(llm), [{"role": "tool", "content": "x"}])
    assert not llm._built.engine.has_work


class _Front:
    """As much of an `LLM` as `chat` needs before it generates."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._input_processor = llm._input_processor


def test_the_model_is_made_where_it_works(monkeypatch):
    """OpenMP keeps a team for each thread that has worked in parallel: a second one takes the first one's processors."""
    makers = []
    import specdec.frontend.async_llm as module

    def build(*arguments):
        makers.append(threading.current_thread().name)
        return real(*arguments)

    real = module.build
    monkeypatch.setattr(module, "build", build)
    llm = AsyncLLM("zoo", dtype="float32")
    assert makers == ["specdec-engine"]
    assert llm.is_running
    assert llm.target_info.vocab_size == 4096
    llm.shutdown()
    assert not llm.is_running


def test_what_is_wrong_with_the_arguments_reaches_the_caller():
    with pytest.raises(ConfigError, match="max_num_seqs"):
        AsyncLLM("zoo", max_num_seqs=0)


COUNT = """
import os, threading, time, torch
from specdec.frontend.threads import release_threads
torch.set_num_threads(3)
def count(): return len(os.listdir("/proc/self/task"))
def settled(number):
    for _ in range(100):
        if count() == number: break
        time.sleep(0.05)
    return count()
def work():
    x = torch.ones(1000, 1000)
    return float((x * x + x).exp().sum())
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def counts(code: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", COUNT + code], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


@linux
def test_threads_that_are_not_needed_are_given_back():
    code = """
before, total = count(), work()
during = count()
release_threads()
print(before, during, settled(before), total == work())
"""
    before, during, after, is_same = counts(code.replace("total == work()", "int(total == work())"))
    assert (during, after, is_same) == (before + 2, before, 1)


@pytest.mark.slow
@linux
def test_an_llm_leaves_no_threads_to_those_that_built_it_or_generated():
    code = """
from specdec import LLM, SamplingParams
llm = LLM("zoo", dtype="float32")
llm.generate("def main(", SamplingParams(max_tokens=4))  # tokenizers have threads too, and keep them
time.sleep(0.3)
built = count()
work()
kept = count() - built
for output in llm.stream("def main(", SamplingParams(max_tokens=4)):
    pass
generate = threading.Thread(target=llm.generate, args=("def main(", SamplingParams(max_tokens=4)))
generate.start()
generate.join()
print(kept, settled(built) - built)
"""
    kept, left = counts(code)
    assert kept >= 2  # the negative control: what would be kept is seen here
    assert left <= 0
