"""Proposers outside of our engine: what they are told, what they cost, what they cannot break."""

from __future__ import annotations

import logging
import random

import pytest
import torch
from speccheck.hosting import HIDDEN, drive, state_at, states_of
from speccheck.malformed import MALFORMED
from speccheck.models import tiny

from specdec import ConfigError, FinishReason, PluginError, SamplingParams
from specdec.interfaces import RequestTable
from specdec_hosting import HostedProposer, HostTarget, open_proposer

VOCAB, MAX_LEN = 128, 160
PROMPTS = {"a": 9, "b": 31, "c": 2}


def texts() -> dict[str, list[int]]:
    rng = random.Random(5)
    return {name: [rng.randrange(VOCAB) for _ in range(length + 40)] for name, length in PROMPTS.items()}


def target(**given) -> HostTarget:
    return HostTarget(**{"vocab_size": VOCAB, "max_model_len": MAX_LEN, "max_num_seqs": 4} | given)


def scripted(name: str = "ChainRecorder", **keys) -> dict:
    known = tuple(map(tuple, texts().values()))
    return {"method": f"speccheck.hosting.{name}", "num_speculative_tokens": 4, "texts": known} | keys


def opened(config: dict, **given) -> HostedProposer:
    return open_proposer(config, target(**given), host="this engine")


def hidden(**keys) -> HostedProposer:
    return opened(
        scripted("ChainHiddenRecorder", **keys),
        has_hidden_states=True,
        has_aux_hidden_states=True,
        hidden_size=HIDDEN,
        num_layers=2,
    )


def counts(hosted: HostedProposer) -> dict[str, float]:
    return {metric.name: metric.value for metric in hosted.metrics() if hasattr(metric, "value")}


def proposer_of(hosted: HostedProposer):
    return hosted.proposer


def check_delivered(hosted: HostedProposer, reason: FinishReason = FinishReason.LENGTH) -> None:
    """Everything was delivered in order, and each request ended once, with all of its tokens."""
    proposer = proposer_of(hosted)
    assert proposer.complaints == []
    assert proposer.held == {}
    ended = [(name, tokens) for name, why, tokens in proposer.finished if why is reason]
    assert sorted(ended) == sorted(texts().items())


@pytest.mark.parametrize("piece", [1000, 7])
@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_tokens_come_in_order_and_drafts_are_made(wrong, piece) -> None:
    hosted = opened(scripted(wrong=wrong))
    assert drive(hosted, texts(), PROMPTS, piece=piece) == {n: t[PROMPTS[n] :] for n, t in texts().items()}
    check_delivered(hosted)
    assert list(hosted.request_ids) == []
    counted = counts(hosted)
    assert counted["specdec:num_emitted_tokens"] == 120
    assert (
        counted["vllm:spec_decode_num_draft_tokens"] >= counted["vllm:spec_decode_num_accepted_tokens"] > 20
    )
    assert counted["specdec:proposer_errors"] == 0
    vector = next(m for m in hosted.metrics() if m.name.endswith("per_pos"))
    assert sum(vector.values) == counted["vllm:spec_decode_num_accepted_tokens"]


@pytest.mark.parametrize("piece", [1000, 7])
@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_tokens_come_with_the_states_that_chose_them(wrong, piece) -> None:
    hosted = hidden(wrong=wrong)
    assert hosted.needs_hidden
    assert hosted.aux_layer_ids == (0, 1)
    drive(hosted, texts(), PROMPTS, piece=piece)
    check_delivered(hosted)
    for name, text in texts().items():
        _, states, _ = proposer_of(hosted).final[name]
        assert len(states) == len(text)
        for position, row in enumerate(states):
            for kind, got in enumerate(row):
                want = state_at(position - 1, kind) if position else torch.zeros(HIDDEN)
                assert torch.equal(got, want), f"{name} at {position}"


def test_rows_of_rejected_nodes_shift_no_states_and_the_memory_is_the_hosts_again() -> None:
    """A host hands over what its pass computed, rejected nodes included, and uses the memory for the next one."""
    hosted, text = hidden(), [5, 6, 7, 8, 9, 10, 11, 12]
    hosted.start("x", text[:4])
    for start, news, num_rows, num_drafted in ((0, 1, 4, 0), (4, 2, 5, 4), (6, 1, 4, 3)):
        end = start + (4 if start == 0 else 1)
        hosted.commit("x", text[end : end + news], num_drafted=num_drafted, num_accepted=news - 1)
        states = states_of(start, num_rows, 3)
        hosted.keep_states("x", start, states)
        for state in states:
            state.fill_(float("nan"))
        hosted.propose(["x"])
    got = proposer_of(hosted).states["x"]
    assert len(got) == len(text)
    for position, row in enumerate(got):
        want = [state_at(position - 1, kind) if position else torch.zeros(HIDDEN) for kind in range(3)]
        assert all(map(torch.equal, row, want)), f"at {position}: {row}"


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_bad_draft_costs_that_step_alone(kind) -> None:
    hosted = opened(scripted(malformed_every=3, kinds=(kind,)))
    assert drive(hosted, texts(), PROMPTS) == {n: t[PROMPTS[n] :] for n, t in texts().items()}
    check_delivered(hosted)
    assert proposer_of(hosted).num_malformed > 1
    assert counts(hosted)["vllm:spec_decode_num_accepted_tokens"] > 20


def test_a_failing_proposer_is_told_everything_again_and_then_left_out() -> None:
    hosted = opened(scripted(fails_every=1))
    drive(hosted, texts(), PROMPTS)
    counted = counts(hosted)
    assert counted["specdec:proposer_errors"] == 3
    assert counted["specdec:proposer_pauses"] == 1
    assert counted["vllm:spec_decode_num_drafts"] == 0


def test_requests_that_end_do_not_shorten_a_pause() -> None:
    hosted = opened(scripted(fails_every=1))
    text = texts()["b"]
    for name in map(str, range(80)):
        hosted.start(name, text[:20])
    for _ in range(3):
        hosted.propose(["0"])
    for name in map(str, range(80)):  # more than the pause has steps
        hosted.finish([name], FinishReason.STOP)
    hosted.start("x", text[:20])
    hosted.propose(["x"])
    assert counts(hosted)["specdec:proposer_errors"] == 3


@pytest.mark.time_budget
def test_a_slow_proposer_is_left_out() -> None:
    hosted = opened(scripted(sleep_s=0.06, wrong=0.5))
    hosted.observe_target(0.001)
    drive(hosted, texts(), PROMPTS)
    assert counts(hosted)["specdec:proposer_overruns"] == 3
    assert counts(hosted)["specdec:proposer_pauses"] == 1


def test_a_proposer_may_raise_where_that_is_asked_for() -> None:
    hosted = opened(scripted(fails_every=1, on_proposer_error="raise"))
    with pytest.raises(RuntimeError, match="call 1 fails"):
        drive(hosted, texts(), PROMPTS)


def test_limits_hold_per_request() -> None:
    hosted = opened(scripted())
    text = texts()["b"]
    hosted.start("off", text[:20], SamplingParams(speculative=False, max_tokens=None))
    hosted.start("two", text[:20], SamplingParams(speculative={"num_speculative_tokens": 2}, max_tokens=None))
    hosted.start("last", text[:20], SamplingParams(max_tokens=2))
    hosted.start("full", text[:20])
    lengths = [len(row) for row in hosted.propose(["off", "two", "last", "full"]).rows]
    assert lengths[0] == 0
    assert lengths[1] in (1, 2)
    assert lengths[2] <= 1
    hosted.commit("last", text[20:25])
    assert hosted.num_tokens("last") == 22
    hosted.start("cut", text[:20], SamplingParams(max_tokens=3))
    hosted.commit("cut", text[20:25], num_drafted=4, num_accepted=4)
    assert counts(hosted)["vllm:spec_decode_num_accepted_tokens"] == 3
    assert [len(row) for row in hosted.propose(["full", "last"], [0, 4]).rows] == [0, 0]


def test_batch_size_limits_hold() -> None:
    hosted = opened(scripted(disable_by_batch_size=1))
    text = texts()["b"]
    for name in ("x", "y"):
        hosted.start(name, text[:20])
    assert [len(row) for row in hosted.propose(["x", "y"]).rows] == [0, 0]
    assert 0 < len(hosted.propose(["x"]).rows[0]) <= 4


def test_aborted_requests_teach_nothing_and_ids_may_come_again() -> None:
    hosted = opened(scripted())
    text = texts()["a"]
    hosted.start("a", text[:9])
    hosted.propose(["a"])
    hosted.commit("a", text[9:12])
    hosted.start("a", text[:5])
    assert proposer_of(hosted).finished == [("a", FinishReason.ABORT, text[:9])]
    hosted.propose(["a"])
    hosted.commit("a", text[5:7])
    hosted.finish(["a", "unknown"], FinishReason.STOP)
    assert proposer_of(hosted).finished[1:] == [("a", FinishReason.STOP, text[:7])]
    assert proposer_of(hosted).complaints == []


def test_states_from_a_prefix_cache_are_missing_and_said_to_be(caplog) -> None:
    hosted = hidden()
    text = texts()["b"]
    with caplog.at_level(logging.WARNING, "specdec"):
        for name in ("x", "y"):
            hosted.start(name, text[:31])
            hosted.commit(name, text[31:32])
            hosted.keep_states(name, 16, states_of(16, 15, 3))
    assert [len(row) for row in hosted.propose(["x", "y"]).rows] == [0, 0]
    assert [r.getMessage().count("turn prefix caching off") for r in caplog.records] == [1]
    assert counts(hosted)["specdec:requests_left_out"] == 2


def test_a_preempted_request_is_delivered_anew() -> None:
    hosted = hidden()
    text = texts()["b"]
    hosted.start("x", text[:31])
    hosted.keep_states("x", 0, states_of(0, 20, 3))
    assert hosted.propose(["x"], [0]).rows == ((),)
    hosted.commit("x", text[31:32])
    hosted.keep_states("x", 0, states_of(0, 31, 3))
    hosted.propose(["x"])
    told = proposer_of(hosted)
    assert told.held["x"].tokens == text[:32]
    assert told.pieces["x"] == [(0, 21), (0, 32)]
    assert len(told.states["x"]) == 32
    assert told.complaints == []


def test_what_was_emitted_before_a_request_was_known_is_told_and_not_counted() -> None:
    hosted = opened(scripted())
    text = texts()["b"]
    hosted.start("x", text[:31], output_token_ids=text[31:40])
    assert hosted.num_tokens("x") == 40
    (row,) = hosted.propose(["x"]).rows
    assert row
    assert row == tuple(text[40 : 40 + len(row)])
    assert counts(hosted)["specdec:num_emitted_tokens"] == 0
    assert proposer_of(hosted).held["x"].tokens == text[:40]


def test_a_request_resumed_behind_a_cached_prefix_gets_no_drafts_and_is_counted(caplog) -> None:
    hosted = hidden()
    text = texts()["b"]
    hosted.start("x", text[:31])
    hosted.commit("x", text[31:32])
    hosted.keep_states("x", 0, states_of(0, 31, 3))
    assert hosted.propose(["x"]).rows != ((),)
    with caplog.at_level(logging.WARNING, "specdec"):
        hosted.keep_states("x", 16, states_of(16, 16, 3))
    assert "turn prefix caching off" in caplog.text
    assert hosted.propose(["x"]).rows == ((),)
    assert counts(hosted)["specdec:requests_left_out"] == 1
    assert proposer_of(hosted).complaints == []


def test_noise_is_that_of_the_seed() -> None:
    hosted = opened(scripted())
    hosted.start("x", [1, 2], SamplingParams(seed=5))
    hosted.start("y", [1, 2], SamplingParams(seed=5), seed=2**64 - 1)
    hosted.start("z", [1, 2])
    assert (hosted.seed("x"), hosted.seed("y")) == (5, -1)
    assert 0 <= hosted.seed("z") < 2**63


REFUSED = {
    "states": ({"method": "speccheck.hosting.ChainHiddenRecorder"}, "AUX_HIDDEN_STATES, HIDDEN_STATES of the target"),
    "trees": ({"method": "speccheck.proposers.Scripted"}, "verifies only chains"),
    "sampler": ({"rejection_sample_method": "probabilistic"}, "is not available in this engine: use one of strict"),
    "key": ({"wrng": 1}, "did you mean 'wrong'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_host_cannot_do_is_refused(what) -> None:
    keys, message = REFUSED[what]
    with pytest.raises(ConfigError, match=message):
        opened(scripted(**keys))


def test_no_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs one that names a method"):
        open_proposer(None, target(), host="this engine")
    with pytest.raises(PluginError, match="nothing_of_the_kind"):
        opened({"method": "nothing_of_the_kind", "num_speculative_tokens": 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("draft")
    tiny("llama").save_pretrained(path)
    return str(path)


def test_a_proposer_with_a_model_of_its_own_runs(folder) -> None:
    """The draft continues a text as the same model does, so what it drafts is what that model says."""
    hosted = opened(
        {"method": "draft_model", "model": folder, "num_speculative_tokens": 4}, kv_cache_memory_bytes=2**20
    )
    prompt = texts()["a"][:9]
    generated = tiny("llama").generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
    said = generated[0].tolist()
    emitted = drive(hosted, {"a": said}, {"a": 9})
    assert emitted["a"] == said[9:]
    counted = counts(hosted)
    assert counted["vllm:spec_decode_num_accepted_tokens"] == counted["vllm:spec_decode_num_draft_tokens"] > 6


def test_a_late_draft_is_longer_by_what_was_not_read() -> None:
    repeated = [1, 2, 3, 4, 5, 6, 7, 8, 9] * 3
    hosted = opened({"method": "ngram", "num_speculative_tokens": 4})
    assert hosted.drafts_late
    assert not hosted.drafts_on_device
    for name in "ab":
        hosted.start(name, repeated)
    rows = hosted.propose(["a", "b"], [4, 0], [3, 3]).rows
    assert rows == ((1, 2, 3, 4, 5, 6, 7), ())
    other = opened(scripted())  # not one for late drafts: no more than it was configured for
    other.start("a", texts()["a"][:9])
    (row,) = other.propose(["a"], [4], [3]).rows
    assert 0 < len(row) <= 4
    assert list(row) == texts()["a"][9 : 9 + len(row)]


def test_a_table_of_the_host_is_read_where_it_is() -> None:
    table = RequestTable(torch.zeros(3, 20, dtype=torch.int32), torch.zeros(3, dtype=torch.int32))
    hosted = opened({"method": "ngram_gpu", "num_speculative_tokens": 2}, table=table)
    assert hosted.drafts_on_device
    assert not hosted.drafts_late
    hosted.start("a", [5, 6, 7, 8], line=2)
    table.token_ids[2, :8] = torch.tensor([5, 6, 7, 8, 9, 5, 6, 7])
    table.num_tokens[2] = 8  # four of them are not committed here
    assert hosted.propose(["a"], [2], [4]).read().rows == ((8, 9),)
    assert table.token_ids[:2].sum() == 0
