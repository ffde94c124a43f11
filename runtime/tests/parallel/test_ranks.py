"""One model over two processes: the same tokens as one process, with and without drafts, on every rank; and how they end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from speccheck import ranks
from speccheck.engines import letter_tokenizer
from speccheck.models import prompts
from speccheck.multimodal import SERVED, whole
from speccheck.saved import VOCAB, save_tiny

from specdec import LLM, SamplingParams

pytestmark = pytest.mark.slow

PROMPTS = prompts([3, 17, 30], seed=4, vocab=VOCAB)
GREEDY = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
PARAMS = [GREEDY, *(GREEDY | {"temperature": 0.8, "seed": seed} for seed in (1, 2))]
RUN = {"prompts": PROMPTS, "params": PARAMS}
ZOO_RUN = {
    "prompts": ["def main(", "import os\n\n\ndef walk(", "class Foo:\n    def __init__(self, "],
    "params": [params | {"max_tokens": 24} for params in PARAMS],
}
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


def job(model: str, speculation: dict[str, Any] | None, *runs: dict[str, Any], **more: Any) -> dict[str, Any]:
    arguments = {"model": model, "dtype": "float32", "max_model_len": 64, "tensor_parallel_size": 2}
    return {"arguments": arguments | {"speculative_config": speculation}, "runs": [*runs], **more}


def tokens_of_one(model: str, run: dict[str, Any]) -> list[list[int]]:
    """Return what one process says."""
    params = [SamplingParams(**params) for params in run["params"]]
    outputs = LLM(model, dtype="float32", max_model_len=64).generate(run["prompts"], params)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_two_ranks_say_what_one_says_and_part_with_a_reason(model: str, tmp_path: Path) -> None:
    expected = tokens_of_one(model, RUN)
    texts = [prompt + text for prompt, text in zip(PROMPTS, expected, strict=True)]
    scripted = {
        "method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "shape": "tree", "wrong": 0.2,
        "texts": texts,
    }  # fmt: skip
    itself = {"method": "draft_model", "model": model, "num_speculative_tokens": 3}
    failing = scripted | {"fails_every": 2, "on_proposer_error": "raise"}
    other = {"prompts_by_rank": [[[1, 2]], [[1, 3]]], "params": [GREEDY]}
    jobs = [
        job(model, None, RUN),
        job(model, scripted, RUN, RUN),  # the second time on cached prefixes
        job(model, itself, RUN),
        job(model, failing, RUN),
        job(model, None, RUN, other),
    ]
    done = ranks.wait(ranks.start(tmp_path, jobs, 2), timeout=280)

    for rank in range(2):
        for number in range(3):
            *texts, streamed, _ = ranks.found(tmp_path, number, rank)
            assert texts == [expected] * (1 + (number == 1)), (number, rank)
            assert streamed == expected[0][:3]
        accepted = [ranks.found(tmp_path, number, rank)[-1] for number in range(3)]
        assert accepted[0] == 0
        assert min(accepted[1:]) > 4
        assert ranks.found(tmp_path, 3, rank)[0] == "call 2 fails"
    # In the last job the ranks ask for different texts: both end, with the same reason.
    for status, output in done:
        assert status == 1
        assert "rank 1: EngineError: was given another prompt" in output.splitlines()[-1]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_method_of_the_zoo(tmp_path: Path) -> None:
    expected = tokens_of_one("zoo", ZOO_RUN)
    jobs = [job("zoo", speculation, ZOO_RUN) for speculation in METHODS.values()]
    done = ranks.wait(ranks.start(tmp_path, jobs, 2), timeout=1500)

    assert [status for status, _ in done] == [0, 0], done
    for number, name in enumerate(METHODS):
        for rank in range(2):
            tokens, streamed, accepted = ranks.found(tmp_path, number, rank)
            assert tokens == expected, (name, rank)
            assert streamed == expected[0][:3]
            assert (accepted > 0) == (name != "none")


@pytest.mark.full
@pytest.mark.parametrize("name", ["gemma3", "gemma4_dense", "mistral3", "llama4"])
def test_the_language_model_of_a_multimodal_folder(name: str, tmp_path: Path) -> None:
    folder = str(tmp_path / name)
    whole(SERVED[name]()).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    run = RUN | {"prompts": prompts([3, 17, 30], seed=4)}
    expected = tokens_of_one(folder, run)
    itself = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}
    jobs = [job(folder, speculation, run) for speculation in (None, itself)]
    done = ranks.wait(ranks.start(tmp_path, jobs, 2), timeout=280)

    assert [status for status, _ in done] == [0, 0], done
    for rank in range(2):
        assert [ranks.found(tmp_path, number, rank)[0] for number in range(2)] == [expected] * 2
        assert ranks.found(tmp_path, 1, rank)[-1] > 4


def running(model: str, folder: Path) -> list[Any]:
    """Return two ranks in the middle of a call that takes long: many samples of one prompt, one after another."""
    long = {"prompts": [[1, 2, 3]], "params": [GREEDY | {"n": 64, "max_tokens": 50}]}
    endless = job(model, None, RUN, long)
    endless["arguments"]["max_num_seqs"] = 1
    processes = ranks.start(folder, [endless], 2, SPECDEC_COLLECTIVE_TIMEOUT="15")
    while not (folder / "began_1_1").exists() and all(p.poll() is None for p in processes):
        time.sleep(0.1)
    time.sleep(3.0)
    return processes


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_or_hangs_ends_the_others(
    model: str, tmp_path: Path, victim: int, how: signal.Signals
) -> None:
    processes = running(model, tmp_path)
    os.kill(processes[victim].pid, how)
    other = processes[1 - victim]
    try:
        output = other.communicate(timeout=120)[0].splitlines()[-1]
    finally:
        ranks.end(processes)
    assert other.returncode == 1
    assert "specdec.errors.EngineError: tensor parallelism: " in output
    wanted = "has ended, or was killed" if how is signal.SIGKILL else f"rank {1 - victim} waited 15 s"
    assert wanted in output


@pytest.mark.full
def test_a_rank_that_fails_in_a_pass_ends_the_others(model: str, tmp_path: Path) -> None:
    done = ranks.wait(ranks.start(tmp_path, [job(model, None, RUN, broken_rank=1)], 2), timeout=200)
    for status, output in done:
        assert status == 1
        assert "tensor parallelism: rank 1: MemoryError: no memory left" in output.splitlines()[-1]
