"""The newer model runner, by its signatures: a stub of what is read of it, on the host."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from speccheck.hosting import HIDDEN
from stub_engine import MAX_LEN, VOCAB, StubParams
from support import known, target

from specdec import ConfigError, FinishReason
from specdec_hosting import open_proposer
from specdec_vllm.drafting import Drafting
from specdec_vllm.requests import Requests

TEXT = [7, 3, 9, 1, 4, 4, 8, 2, 30, 11, 5, 6, 12, 13]
K = 3


class StubRunner:
    """Two slots, the request in the second one."""

    num_speculative_steps = K
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.speculator = "vLLM's"
        self.req_states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=torch.zeros(2, MAX_LEN, dtype=torch.int32)),
            total_len=SimpleNamespace(gpu=torch.zeros(2, dtype=torch.int32)),
        )

    def add_requests(self, scheduler_output) -> None:
        self.calls.append("add")

    def finish_requests(self, scheduler_output) -> None:
        self.calls.append("finish")


@pytest.fixture
def module(monkeypatch):
    """The module, over a stub of vLLM's base class."""
    names = ["vllm"]
    for part in ("v1", "worker", "gpu", "spec_decode", "speculator"):
        names.append(f"{names[-1]}.{part}")
        monkeypatch.setitem(sys.modules, names[-1], ModuleType(names[-1]))
    sys.modules[names[-1]].BaseSpeculator = type("BaseSpeculator", (), {})  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "specdec_vllm.speculator", raising=False)
    yield import_module("specdec_vllm.speculator")
    sys.modules.pop("specdec_vllm.speculator", None)


class Tried:
    """A runner with the speculator in it, and what one step needs."""

    def __init__(self, module, config, *, is_drafting: bool = True, broadcast=None) -> None:
        self.runner = StubRunner()
        config = {"num_speculative_tokens": K} | config
        self.drafting = Drafting(open_proposer(config, target(), host="vLLM")) if is_drafting else None
        self.speculator = module.Speculator(self.drafting, self.runner, Requests(0, "all"), broadcast)
        self.speculator.attach()

    def add(self, num_prompt: int) -> None:
        new = SimpleNamespace(
            req_id="x", prompt_len=num_prompt, sampling_params=StubParams(temperature=0.9, max_tokens=40)
        )
        self.runner.add_requests(SimpleNamespace(scheduled_new_reqs=[new]))

    def step(
        self, length: int, num_rows: int, num_sampled: int, num_drafted: int = 0, **keys
    ) -> list[list[int]]:
        held = self.runner.req_states
        held.all_token_ids.gpu[1, :length] = torch.tensor(TEXT[:length])
        held.total_len.gpu[1] = length
        num_rejected = num_drafted + 1 - num_sampled if num_sampled else 0
        start = length - num_sampled - num_rows + 1 + num_drafted if num_sampled else length - num_rows
        batch = SimpleNamespace(
            req_ids=["x"],
            num_reqs=1,
            idx_mapping=torch.tensor([1]),
            idx_mapping_np=np.array([1]),
            num_draft_tokens_per_req=np.array([num_drafted]),
            query_start_loc_np=np.array([0, num_rows]),
            num_computed_tokens_np=np.array([start]),
        )
        states = torch.arange(start, start + num_rows, dtype=torch.float32)[:, None].repeat(1, HIDDEN) + 1.0
        last = torch.zeros(2, 1, dtype=torch.int64)
        last[1] = TEXT[length - 1]
        counts = torch.tensor([num_sampled]), torch.tensor([num_rejected])
        drafts = self.speculator.propose(batch, {}, {}, states, None, *counts, last, None, None, None, **keys)
        assert drafts.dtype == torch.int64
        assert tuple(drafts.shape) == (1, K)
        return drafts.tolist()


def test_drafts_are_made_and_filled_up(module) -> None:
    tried = Tried(module, known({"x": TEXT}))
    assert tried.runner.speculator is tried.speculator
    tried.add(5)
    assert tried.step(5, 3, 0) == [
        [4, 4, 4]
    ]  # a piece of the prompt: nothing is drafted, rows are full all the same
    first = tried.step(6, 2, 1)[0]
    drafted = [token for token, right in zip(first, TEXT[6:9], strict=True) if token == right]
    assert drafted == TEXT[6 : 6 + len(drafted)]
    assert tried.step(9, 4, 3, num_drafted=3)[0][0] in (TEXT[9], TEXT[8])
    proposer = tried.drafting.hosted.proposer
    assert proposer.held["x"].tokens == TEXT[:9]
    assert proposer.complaints == []
    assert proposer.feedback["x"][-1] == (3, 2)


def test_requests_end(module) -> None:
    tried = Tried(module, known({"x": TEXT}))
    tried.add(5)
    tried.step(6, 5, 1)
    tried.runner.finish_requests(SimpleNamespace(finished_req_ids={"x", "unknown"}))
    assert tried.drafting.hosted.proposer.finished == [("x", FinishReason.ABORT, TEXT[:6])]
    assert tried.runner.calls == ["add", "finish"]


def test_trial_runs_touch_nothing(module) -> None:
    tried = Tried(module, known({"x": TEXT}))
    assert tried.step(6, 6, 1, dummy_run=True) == [[TEXT[5]] * K]
    assert tried.step(6, 6, 1, is_profile=True) == [[TEXT[5]] * K]
    assert tried.drafting.hosted.proposer.num_calls == 0


def test_other_ranks_take_the_drafts_of_the_first(module) -> None:
    tried = Tried(
        module, known({"x": TEXT}), is_drafting=False, broadcast=lambda drafts: drafts.fill_(VOCAB - 1)
    )
    tried.add(5)
    assert tried.step(6, 6, 1) == [[VOCAB - 1] * K]


def test_a_failure_of_the_adapter_costs_drafts_and_no_rank_waits(module, monkeypatch) -> None:
    sent = []
    tried = Tried(module, known({"x": TEXT}), broadcast=lambda drafts: sent.append(drafts.tolist()))
    tried.add(5)
    tried.step(6, 6, 1)
    fails = iter([True])
    monkeypatch.setattr(tried.drafting.hosted, "num_tokens", lambda name: next(fails) and 1 / 0)
    assert tried.step(7, 1, 1) == [[TEXT[6]] * K] == sent[-1]
    assert tried.drafting.counters()["specdec:adapter_failures"] == 1
    monkeypatch.undo()
    assert tried.step(8, 1, 1) == sent[-1]
    assert tried.drafting.hosted.proposer.held["x"].tokens == TEXT[:8]
    assert len(sent) == 3


def test_auxiliary_layers_are_refused(module) -> None:
    with pytest.raises(ConfigError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        Tried(module, known({"x": TEXT}, "ChainHiddenRecorder"))


def test_adaptive_is_refused_where_drafts_are_always_full(module) -> None:
    with pytest.raises(ConfigError, match="'adaptive' has no effect in vLLM's newer model runner"):
        Tried(module, known({"x": TEXT}) | {"adaptive": True})
