"""A proposer in vLLM's V2 model runner, of which a stub has what is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from speccheck.hosting import ChainHiddenRecorder, ChainRecorder
from stub_v2 import VOCAB, K, StubRunner, StubScheduler
from support import target

from specdec import FinishReason
from specdec.engine import num_aligned
from specdec.interfaces import Capability, RequestTable
from specdec_hosting import open_proposer
from specdec_vllm.requests import Requests
from specdec_vllm.v2.unread import LateDraft
from specdec_vllm.v2.verify import accepted

TEXTS = {
    "a": [7, 3, 9, 4, 4, 8, 2, 30, 11, 5, 6, 12, 13, 7, 3, 9, 4, 4, 8, 2, 30, 11, 5, 6],
    "b": [5, 9, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28],
    "c": [3] * 20,
}
PROMPTS = {"a": 5, "b": 9, "c": 1}
WAITS = ("tolist", "item", "cpu", "numpy", "nonzero", "__int__", "__bool__", "__float__", "__index__")


class Late(ChainRecorder):
    """Drafts beyond k where it is asked to."""

    capabilities = frozenset({Capability.LATE_DRAFTS})


class Tried:
    """A runner with a proposer in it, and what schedules its steps."""

    def __init__(
        self, v2_module, proposer, *, num_behind: int = 1, is_drafting=True, when=None, **keys
    ) -> None:
        self.runner = StubRunner(TEXTS, PROMPTS)
        states = self.runner.req_states
        table = RequestTable(states.all_token_ids.gpu, states.total_len.gpu)
        self.hosted = None
        if is_drafting:
            config = {"num_speculative_tokens": K, "rejection_sample_method": "strict"} | (
                proposer
                if isinstance(proposer, dict)
                else {
                    "method": f"{proposer.__module__}.{proposer.__name__}",
                    "texts": (*map(tuple, TEXTS.values()),),
                }
            )
            hosted = open_proposer(config, replace(target(), table=table), host="vLLM")
            self.hosted, when = hosted, v2_module.when_asked(hosted, num_behind)
        self.when = when
        requests = Requests(0, "all")
        if self.hosted is not None and hosted.aux_layer_ids:
            self.runner.use_aux_hidden_state_outputs, keys["aux_layer_ids"] = True, hosted.aux_layer_ids
        self.speculator = v2_module.Speculator(self.hosted, when, self.runner, requests, num_behind, **keys)
        self.speculator.attach()
        self.scheduler = StubScheduler(self.runner, num_behind, piece=4)

    @property
    def proposer(self):
        return self.hosted.proposer

    def run(self) -> dict[str, list[int]]:
        for name in TEXTS:
            self.scheduler.add(name, temperature=0.9)
        return self.scheduler.run()


CASES = {
    "late": (Late, 1, "late"),
    "late without more than k": (ChainRecorder, 1, "late"),
    "without asynchronous scheduling": (ChainRecorder, 0, "in_time"),
    "states": (ChainHiddenRecorder, 1, "in_time"),
    "on the device": ({"method": "ngram_gpu"}, 1, "on_device"),
    "ngram": ({"method": "ngram"}, 1, "late"),
}


@pytest.mark.parametrize("case", CASES)
def test_texts_come_out_and_proposers_learn_all_of_them(v2_module, case) -> None:
    proposer, num_behind, when = CASES[case]
    tried = Tried(v2_module, proposer, num_behind=num_behind)
    assert tried.when == when
    assert tried.run() == TEXTS
    counters = tried.hosted.counters()
    assert counters["specdec:adapter_failures"] == counters["specdec:proposer_errors"] == 0
    assert counters["vllm:spec_decode_num_accepted_tokens"] > 0
    assert not tried.hosted.request_ids
    if not isinstance(proposer, dict):
        assert tried.proposer.complaints == []
        ended = {name: (reason, tokens) for name, reason, tokens in tried.proposer.finished}
        if when == "late":
            assert ended == {name: (FinishReason.LENGTH, text) for name, text in TEXTS.items()}


def test_more_is_accepted_of_late_drafts_that_may_be_longer(v2_module) -> None:
    accepted_of = {}
    for proposer in (ChainRecorder, Late):
        tried = Tried(v2_module, proposer)
        tried.run()
        accepted_of[proposer] = tried.hosted.counters()["vllm:spec_decode_num_accepted_tokens"]
    assert accepted_of[Late] > accepted_of[ChainRecorder]


def test_what_is_counted_is_what_was_verified(v2_module) -> None:
    tried = Tried(v2_module, Late)
    tried.run()
    feedback = [pair for pairs in tried.proposer.feedback.values() for pair in pairs]
    assert all(0 <= num_accepted <= num_drafted <= K for num_drafted, num_accepted in feedback)
    counters = tried.hosted.counters()
    assert counters["vllm:spec_decode_num_draft_tokens"] == sum(drafted for drafted, _ in feedback)


@pytest.mark.parametrize("case", ["late", "ngram", "on the device"])
def test_the_host_waits_for_no_result_of_the_device(v2_module, monkeypatch, case) -> None:
    tried, waits, is_inside = Tried(v2_module, CASES[case][0]), [], []
    if case == "on the device":
        tried.proposer._is_read = False  # as on a device
    for name in WAITS:
        stock = getattr(torch.Tensor, name)

        def counted(self, *arguments, _stock=stock, _name=name, **keys):
            if is_inside:
                waits.append(_name)
            return _stock(self, *arguments, **keys)

        monkeypatch.setattr(torch.Tensor, name, counted)
    for name in ("update_requests", "finish_requests", "add_requests"):
        monkeypatch.setattr(tried.runner, name, _inside(getattr(tried.runner, name), is_inside))
    monkeypatch.setattr(tried.speculator, "propose", _inside(tried.speculator.propose, is_inside))
    assert tried.run() == TEXTS
    # What a proposer on the host returns is its own tensor on the host.
    assert [name for name in waits if case == "on the device" or name != "tolist"] == []


def _inside(function, is_inside):
    def called(*arguments, **keys):
        is_inside.append(True)
        try:
            return function(*arguments, **keys)
        finally:
            is_inside.pop()

    return called


def test_preempted_requests_begin_anew(v2_module) -> None:
    tried = Tried(v2_module, Late)
    tried.scheduler.add("a")
    for _ in range(4):
        tried.scheduler.step()
    tried.scheduler.end("a", is_preempted=True)
    tried.scheduler.step()
    tried.runner.prompts = PROMPTS | {"a": len(tried.scheduler.known["a"])}
    tried.scheduler.add("a")
    tried.scheduler._new[-1].prompt_token_ids = TEXTS["a"][: PROMPTS["a"]]
    assert tried.scheduler.run()["a"] == TEXTS["a"]
    assert tried.proposer.complaints == []


def test_aborted_requests_leave(v2_module) -> None:
    tried = Tried(v2_module, Late)
    for name in TEXTS:
        tried.scheduler.add(name)
    for _ in range(4):
        tried.scheduler.step()
    tried.scheduler.end("b")
    tried.scheduler.run()
    assert {name: reason for name, reason, _ in tried.proposer.finished}["b"] == FinishReason.ABORT
    assert {name: tried.scheduler.known[name] for name in "ac"} == {name: TEXTS[name] for name in "ac"}


def test_grammars_are_told_the_late_drafts(v2_module) -> None:
    tried = Tried(v2_module, Late)
    tried.scheduler.grammar = True
    tried.run()
    told = [row for _, rows in tried.runner.told_grammar for row in rows]
    assert sorted(told) == sorted(draft for draft in tried.runner.verified if draft)


def test_trial_runs_touch_nothing(v2_module) -> None:
    tried = Tried(v2_module, ChainRecorder, num_behind=0)
    batch = type("Batch", (), {"idx_mapping": torch.tensor([1])})
    tried.runner.req_states.last_sampled_tokens[1] = 5
    rest = (None,) * 6
    for keys in ({"dummy_run": True}, {"is_profile": True}):
        last = tried.runner.req_states.last_sampled_tokens
        assert tried.speculator.propose(batch, {}, {}, *rest[:4], last, *rest[:3], **keys).tolist() == [
            [5] * K
        ]
    assert tried.proposer.num_calls == 0


@pytest.mark.parametrize("when", ["late", "in_time"])
def test_other_ranks_take_the_drafts_of_the_first(v2_module, when) -> None:
    tried = Tried(
        v2_module, None, is_drafting=False, when=when, broadcast=lambda drafts: drafts.fill_(VOCAB - 1)
    )
    assert tried.run() == TEXTS
    assert {tuple(draft) for draft in tried.runner.verified if draft} == {(VOCAB - 1,) * K}


@pytest.mark.parametrize("case", ["late", "without asynchronous scheduling"])
def test_a_failure_of_the_adapter_costs_drafts_and_no_rank_waits(v2_module, monkeypatch, case) -> None:
    sent = []
    tried = Tried(
        v2_module, CASES[case][0], num_behind=CASES[case][1], broadcast=lambda d: sent.append(len(d))
    )
    monkeypatch.setattr(tried.hosted, "propose", lambda *_: 1 / 0)
    assert tried.run() == TEXTS
    assert tried.hosted.counters()["specdec:adapter_failures"] > 0
    assert sent


def test_what_is_left_of_a_late_draft() -> None:
    late = LateDraft(7, (1, 2, 3, 4, 5))
    assert [num_aligned(late.token_ids, since, 3) for since in ([], [1], [9], [1, 2], [1, 9], [9, 2], [1, 2, 3, 4, 5])] == [
        3, 3, 3, 3, 3, 0, 0,
    ]  # fmt: skip


def test_drawn_tokens_are_emitted_up_to_the_first_that_was_not_drafted() -> None:
    starts = torch.tensor([0, 4, 5, 8])
    drafted = torch.tensor([0, 1, 2, 3, 0, 0, 6, -1])
    drawn = torch.tensor([1, 2, 9, 9, 4, 6, 7, 8])
    ids, counts = accepted(drawn, drafted, starts, 3)
    assert counts.tolist() == [3, 1, 2]
    assert [row[:n] for row, n in zip(ids.tolist(), counts.tolist(), strict=True)] == [[1, 2, 9], [4], [6, 7]]
    assert ids.shape == (3, 4)
