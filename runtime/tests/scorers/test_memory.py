"""How much of a device's memory the caches get: counters of a made-up device, a real pass on the host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from speccheck.models import tiny

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec_runtime.runner import ModuleRunner
from specdec_runtime.scorers import memory
from specdec_runtime.scorers.memory import longest_pass, num_slots, step_bytes

CUDA = SimpleNamespace(device=torch.device("cuda"), max_model_len=100)
TOTAL, FREE, OWN = 10_000_000, 8_000_000, 1_000_000


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (FREE, TOTAL))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: OWN)


def options(**given) -> EngineOptions:
    return EngineOptions(model="zoo", block_size=16, **given)


@pytest.mark.usefixtures("device")
def test_caches_get_what_a_step_leaves() -> None:
    # 8 MB free, of which a tenth stays free and 2 MB are a step's; 1000 bytes per token.
    assert num_slots(options(), CUDA, 1000, lambda: 2_000_000) == 5_200 // 16 * 16
    # Half of 10 MB less 1 MB of weights; what other processes hold is theirs.
    assert num_slots(options(gpu_memory_utilization=0.5), CUDA, 1000, lambda: 2_000_000) == 2_000 // 16 * 16
    assert num_slots(options(gpu_memory_utilization=0.4), CUDA, 1000, lambda: 2_000_000) == 1_000 // 16 * 16
    # No more than the batch can use: 64 sequences of 101 tokens, in blocks of 16.
    assert num_slots(options(max_num_seqs=4), CUDA, 10, lambda: 0) == 4 * 112
    with pytest.raises(ConfigError, match=r"room for 0 tokens.*less than max_model_len=100"):
        num_slots(options(), CUDA, 1000, lambda: FREE)


def test_what_was_given_is_not_measured() -> None:
    def measured() -> int:
        raise AssertionError("a step was run")

    assert num_slots(options(kv_cache_memory_bytes=200_000), CUDA, 1000, measured) == 192
    assert num_slots(options(num_gpu_blocks_override=9), CUDA, 1000, measured) == 144
    host = SimpleNamespace(device=torch.device("cpu"), max_model_len=100)
    assert num_slots(options(max_num_seqs=1), host, 1000, measured) == 112


def test_a_step_needs_its_peak_and_the_copies_of_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    runner = ModuleRunner(model, torch.device("cpu"), 64)
    passes = []
    forward = runner.forward
    monkeypatch.setattr(
        runner, "forward", lambda batch: passes.append(len(batch.token_ids)) or forward(batch)
    )
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1_000)
    logits = 40 * model.config.vocab_size * 4
    given = options(max_num_batched_tokens=40)
    assert step_bytes(runner, given, 0) == 300 + memory._FLOAT32_COPIES * logits
    assert step_bytes(runner, given, 2_000) == 300 + memory._FLOAT32_COPIES * logits + 2_000
    assert step_bytes(runner, given, 0, 10) == 300 + memory._FLOAT32_COPIES * logits // 4
    longer = options(max_num_batched_tokens=150)
    assert step_bytes(runner, longer, 0) == 300 + memory._FLOAT32_COPIES * logits // 40 * 150
    assert passes == [40, 40, 40, 150]
    assert runner.cache.num_slots == 0

    def fail(batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    monkeypatch.setattr(runner, "forward", fail)
    with pytest.raises(
        ConfigError, match=r"max_num_batched_tokens=150 tokens does not fit.*CUDA out of memory\)"
    ):
        step_bytes(runner, longer, 0)


def test_the_longest_pass_is_of_requests_as_long_as_they_may_be() -> None:
    batch = longest_pass(11, 4, torch.device("cpu"))
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert batch.slots.tolist() == list(range(11))
    assert [(s.row, s.num_rows, s.first_slot) for s in batch.segments] == [(0, 4, 0), (4, 4, 4), (8, 3, 8)]
