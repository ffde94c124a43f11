"""One model over two processes: the same tokens as one process, with and without drafts; and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from speccheck.engines import letter_tokenizer
from speccheck.models import prompts
from speccheck.multimodal import SERVED, whole
from speccheck.saved import VOCAB, save_tiny

from specdec import LLM, AsyncLLM, EngineError, ModelError, SamplingParams
from specdec_runtime.parallel.scorer import SplitScorer

pytestmark = pytest.mark.slow

PROMPTS = prompts([3, 17, 30], seed=4, vocab=VOCAB)
ZOO_PROMPTS = ["def main(", "import os\n\n\ndef walk(", "class Foo:\n    def __init__(self, "]
METHODS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4},
    "suffix": {"method": "suffix", "num_speculative_tokens": 4},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3},
    "eagle3 tree": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 6, "tree_top_k": 2},
    "draft on one": {
        "method": "draft_model", "model": "zoo", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1,
    },
    "draft on two": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
    "mtp": {"method": "mtp", "model": "zoo", "num_speculative_tokens": 1},
}  # fmt: skip


def params(max_tokens: int) -> list[SamplingParams]:
    """Return those of three prompts: greedy, and two seeds."""
    same = {"max_tokens": max_tokens, "ignore_eos": True}
    return [
        SamplingParams(temperature=0.0, **same),
        *(SamplingParams(temperature=0.8, seed=seed, **same) for seed in (1, 2)),
    ]


def tokens(llm: LLM, prompts: Any, max_tokens: int = 6) -> list[list[int]]:
    return [
        output.outputs[0].token_ids for output in llm.generate(prompts, params(max_tokens), use_tqdm=False)
    ]


def ranks_of_this_process() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "specdec_runtime.parallel.follow" in child.cmdline()
    ]


@contextmanager
def split(model: str, speculation: dict[str, Any] | None = None, **more: Any) -> Iterator[LLM]:
    """A model over two ranks, which end with it."""
    llm = LLM(
        model,
        dtype="float32",
        max_model_len=64,
        tensor_parallel_size=2,
        speculative_config=speculation,
        **more,
    )
    assert len(ranks_of_this_process()) == 1
    try:
        yield llm
    finally:
        llm.shutdown()
    assert not ranks_of_this_process()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_two_ranks_say_what_one_says(model: str) -> None:
    expected = tokens(LLM(model, dtype="float32", max_model_len=64), PROMPTS)
    texts = [prompt + text for prompt, text in zip(PROMPTS, expected, strict=True)]
    scripted = {
        "method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "shape": "tree", "wrong": 0.2,
        "texts": texts,
    }  # fmt: skip
    itself = {"method": "draft_model", "model": model, "num_speculative_tokens": 3}
    for speculation in (None, scripted, itself):
        with split(model, speculation) as llm:
            assert tokens(llm, PROMPTS) == expected
            assert tokens(llm, PROMPTS) == expected  # on cached prefixes
            *_, last = llm.stream(PROMPTS[0], params(6)[0])
            assert last.outputs[0].token_ids == expected[0]
            metrics = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
            assert speculation is None or metrics["vllm:spec_decode_num_accepted_tokens"] > 8


def test_an_engine_on_a_thread_of_its_own(model: str) -> None:
    expected = tokens(LLM(model, dtype="float32", max_model_len=64), PROMPTS)
    llm = AsyncLLM(model, dtype="float32", max_model_len=64, tensor_parallel_size=2)

    async def text(place: int) -> list[int]:
        async for output in llm.generate(PROMPTS[place], params(6)[place], is_streaming=False):
            last = output
        return last.outputs[0].token_ids

    async def all_texts() -> list[list[int]]:
        return list(await asyncio.gather(*map(text, range(3))))

    assert asyncio.run(all_texts()) == expected
    [rank] = ranks_of_this_process()
    rank.kill()
    with pytest.raises(EngineError, match="another rank than rank 0 has ended, or was killed; all ranks end"):
        asyncio.run(text(0))
    llm.shutdown()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_method_of_the_zoo() -> None:
    expected = tokens(LLM("zoo", dtype="float32", max_model_len=64), ZOO_PROMPTS, 24)
    for speculation in METHODS.values():
        with split("zoo", speculation) as llm:
            assert tokens(llm, ZOO_PROMPTS, 24) == expected


@pytest.mark.full
@pytest.mark.parametrize("name", ["gemma3", "gemma4_dense", "mistral3", "llama4"])
def test_the_language_model_of_a_multimodal_folder(name: str, tmp_path: Path) -> None:
    folder = str(tmp_path / name)
    whole(SERVED[name]()).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    asked = prompts([3, 17, 30], seed=4)
    expected = tokens(LLM(folder, dtype="float32", max_model_len=64), asked)
    for speculation in (None, {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}):
        with split(folder, speculation) as llm:
            assert tokens(llm, asked) == expected


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_or_hangs_ends_the_others(
    model: str, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_COLLECTIVE_TIMEOUT", "10")
    wanted = "has ended, or was killed" if how is signal.SIGKILL else "rank 0 waited 10 s"
    with split(model) as llm:
        [rank] = ranks_of_this_process()
        rank.send_signal(how)
        with pytest.raises(EngineError, match=f"tensor parallelism: .*{wanted}"):
            tokens(llm, PROMPTS)
        if how is signal.SIGSTOP:
            rank.kill()
        else:
            with pytest.raises(EngineError, match="tensor parallelism: "):
                tokens(llm, PROMPTS)


def test_a_rank_that_fails_says_why(model: str) -> None:
    with split(model) as llm:
        scorer = llm._built.scorer
        assert isinstance(scorer, SplitScorer)
        scorer.models.broadcast("do_what_no_rank_can")
        with pytest.raises(
            EngineError, match=r"rank 1: AttributeError: .*do_what_no_rank_can.*; all ranks end"
        ):
            tokens(llm, PROMPTS)


def test_a_model_that_cannot_be_split_leaves_no_process(tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path / "odd", "opt"))
    with pytest.raises(ModelError):
        LLM(folder, dtype="float32", max_model_len=64, tensor_parallel_size=2)
    assert not ranks_of_this_process()


def test_ranks_end_with_a_killed_leader(model: str) -> None:
    script = (
        "import sys, time; from specdec import LLM\n"
        f"llm = LLM({model!r}, dtype='float32', max_model_len=64, tensor_parallel_size=2); print('made', flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "made\n"
        [rank] = psutil.Process(leader.pid).children()
        os.kill(leader.pid, signal.SIGKILL)
        rank.wait(30)
