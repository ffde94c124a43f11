"""What a proposer is told of SGLang's requests, and what SGLang gets for it; without SGLang."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from specdec import ConfigError, Draft, FinishReason, ProposeBatch, Proposer
from specdec.interfaces import Capability
from specdec_hosting import HostTarget, open_proposer
from specdec_sglang.drafting import LIMIT_KEY, Drafting
from specdec_sglang.layout import laid_out
from specdec_sglang.settings import read_settings, set_arguments, with_width

WIDTH = 4
END = 99


class Scripted(Proposer):
    """Drafts the numbers after the last token, and records what it is told."""

    name = "scripted"
    capabilities = frozenset({Capability.LATE_DRAFTS})
    told: list[tuple[str, list[int]]]
    ended: list[tuple[str, FinishReason]]
    results: list[tuple[int, int]]

    def propose(self, batch: ProposeBatch) -> Draft:
        at = 0
        for name, count in zip(batch.request_ids, batch.counts, strict=True):
            if count:
                self.told.append((name, batch.new_token_ids[at : at + count].tolist()))
            at += count
        self.results += [*zip(batch.last_num_drafted, batch.last_num_accepted, strict=True)]
        if any(batch.token_ids(row)[-1] == 13 for row in range(batch.batch_size)):
            raise RuntimeError("no")
        lasts = [int(batch.token_ids(row)[-1]) for row in range(batch.batch_size)]
        return Draft.from_lists(
            [[*range(last + 1, last + 1 + most)] for last, most in zip(lasts, batch.max_nodes, strict=True)]
        )

    def finish(self, request_ids: Any, reason: FinishReason) -> None:
        self.ended += [(name, reason) for name in request_ids]


@pytest.fixture
def drafting(monkeypatch: pytest.MonkeyPatch) -> Drafting:
    for name in ("told", "ended", "results"):
        monkeypatch.setattr(Scripted, name, [], raising=False)
    target = HostTarget(vocab_size=200, max_model_len=64)
    config = {"method": f"{__name__}.Scripted", "num_speculative_tokens": WIDTH - 1}
    monkeypatch.setitem(__import__("sys").modules, __name__, SimpleNamespace(Scripted=Scripted))
    return Drafting(open_proposer(config, target, host="SGLang"), WIDTH)


class Req:
    """SGLang's request, as far as the adapter reads it."""

    def __init__(self, rid: str, prompt: list[int], **parameters: Any) -> None:
        self.rid, self.origin_input_ids_unpadded = rid, array("q", prompt)
        self.output_ids = array("q")
        self.finished_reason: Any = None
        self.eos_token_ids = {END}
        given = {"max_new_tokens": 20, "stop_token_ids": None, "ignore_eos": False, "custom_params": None}
        self.sampling_params = SimpleNamespace(**given | parameters)

    def finished(self) -> bool:
        return self.finished_reason is not None

    @property
    def output_ids_through_stop(self) -> array[int]:
        return self.output_ids

    def end(self, kind: str) -> None:
        self.finished_reason = SimpleNamespace(to_json=lambda: {"type": kind})


def test_tokens_arrive_in_order_whether_or_not_sglang_has_read_them(drafting: Drafting) -> None:
    req = Req("a", [1, 2])
    assert drafting.draft([req], [[3]]).rows == ((4, 5, 6),), "overlapped: the prompt's token is not read yet"
    req.output_ids.extend([3])
    assert drafting.draft([req], [[4, 5, 9]]).rows == ((10, 11, 12),)
    req.output_ids.extend([4, 5, 9])
    assert drafting.draft([req]).rows == ((10, 11, 12),), "a step that is not overlapped"
    assert Scripted.told == [("a", [1, 2, 3]), ("a", [4, 5, 9])]
    assert Scripted.results == [(0, 0), (3, 2), (0, 0)]


def test_a_late_draft_is_longer_and_counted_as_far_as_it_was_verified(drafting: Drafting) -> None:
    req = Req("a", [1, 2])
    (row,) = drafting.draft([req], is_late=[True]).rows
    assert row == (3, 4, 5, 6, 7, 8, 9), "what the prompt may emit, then a draft"
    drafting.draft([req], is_late=[True])
    req.output_ids.extend([3])
    drafting.draft([req], is_late=[True])
    req.output_ids.extend([4, 5])
    drafting.draft([req], is_late=[True])
    assert Scripted.results[-1] == (WIDTH - 1, 1), "(4, 5, 6) was left of the first draft, and 4 was accepted"
    req.output_ids.extend([7, 8])
    assert drafting.draft([req], is_late=[False]).rows == ((9, 10, 11),), (
        "a prompt ran since: SGLang has read all"
    )


def test_ends_are_told_with_the_last_tokens_and_their_reason(drafting: Drafting) -> None:
    first, second, third = Req("a", [1, 2]), Req("b", [5]), Req("c", [7])
    drafting.draft([first, second, third], [[3], [6], [8]])
    for req, token in ((first, 3), (second, 6), (third, 8)):
        req.output_ids.extend([token])
    assert drafting.draft([first, second, third], [[4, END, 7], [7], [9]]).rows[0] == ()
    first.output_ids.extend([4, END])
    first.end("stop")
    drafting.finish("a")
    drafting.leave(["b", "c", "unknown"])
    second.output_ids.extend([7])
    second.end("length")
    drafting.finish("b")  # SGLang finds the end of one that has left the batch with its next results
    ended = [("a", FinishReason.STOP), ("b", FinishReason.LENGTH)]
    assert Scripted.ended == ended
    assert ("a", [4, END]) in Scripted.told
    assert drafting.draft([first], [[1]]).rows == ((),), "it stays in the batch for a step"
    assert Scripted.ended == [*ended, ("c", FinishReason.ABORT)]
    assert not drafting.hosted.request_ids


def test_a_request_that_comes_back_is_told_anew(drafting: Drafting) -> None:
    req = Req("a", [1, 2])
    drafting.draft([req], [[3]])
    again = Req("a", [8])
    drafting.draft([again], [[9]])
    assert Scripted.told == [("a", [1, 2, 3]), ("a", [8, 9])]
    assert Scripted.ended == [("a", FinishReason.ABORT)]


def test_limits_of_a_request(drafting: Drafting) -> None:
    reqs = [
        Req(name, [1], custom_params={LIMIT_KEY: most}) for name, most in (("a", 0), ("b", 2), ("c", "x"))
    ]
    rows = drafting.draft(reqs, [[2]] * 3).rows
    assert [len(row) for row in rows] == [0, 2, 3]


def test_failures_cost_a_step(drafting: Drafting, caplog: pytest.LogCaptureFixture) -> None:
    req = Req("a", [1])
    assert drafting.draft([req], [[13]]).rows == ((),), "the proposer raises"
    req.output_ids.extend([13])
    assert drafting.draft([req], [[14]]).rows == ((15, 16, 17),)
    broken: Any = SimpleNamespace(rid="b", finished=lambda: False)
    assert drafting.draft([broken, req], [[1], [15]]).rows == ((), ())
    assert drafting.hosted.counters()["specdec:adapter_failures"] == 1
    assert "adapter for SGLang failed" in caplog.text
    assert drafting.draft([req], [[14]]).rows == ((15, 16, 17),)


def test_chains_and_trees_are_filled_up_without_equal_siblings() -> None:
    ids, mask = laid_out([7, 8], [(1,), (1, 2, 3)], [(-1,), (-1, -1, 0)], 5)
    assert ids.tolist() == [[7, 1, 7, 7, 7], [8, 1, 2, 3, 8]]
    assert mask[0].tolist() == [[j <= i for j in range(5)] for i in range(5)]
    assert mask[1].astype(int).tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"method": "ngram", "adaptive": True}, "'adaptive' has no effect"),
        ({"method": "ngram", "rejection_sample_method": "block"}, "verifies drafts itself"),
        ({"method": "ngram", "late_drafts": 1}, "give true or false"),
        ({"method": "ngram", "kv_cache_memory_bytes": 0}, "above 0"),
    ],
)
def test_settings_that_contradict_the_host_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_settings(config)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEC_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="needs a configuration"):
        read_settings()
    monkeypatch.setenv("SPECDEC_CONFIG", '{"method": "ngram", "late_drafts": false}')
    assert read_settings().late_drafts is False
    assert read_settings().speculative_config == {"method": "ngram"}


def arguments(**given: Any) -> Any:
    names = ("speculative_num_draft_tokens", "speculative_eagle_topk", "max_running_requests")
    return SimpleNamespace(
        model_path="nowhere", **dict.fromkeys(names) | {"enable_mixed_chunk": True} | given
    )


def test_sglang_is_told_the_width() -> None:
    theirs = arguments()
    set_arguments(theirs, read_settings({"method": "ngram", "num_speculative_tokens": 7}))
    assert (theirs.speculative_num_draft_tokens, theirs.speculative_eagle_topk) == (8, 1)
    assert not theirs.enable_mixed_chunk
    theirs = arguments(speculative_num_draft_tokens=3, speculative_eagle_topk=4)
    set_arguments(theirs, read_settings({"method": "ngram"}))
    assert (theirs.speculative_num_draft_tokens, theirs.speculative_eagle_topk) == (3, 4)
    with pytest.raises(ConfigError, match="leave one of them out"):
        with_width({"num_speculative_tokens": 5}, 5)
    for refused in ({"attn_dp_size": 2}, {"pp_size": 2}):
        with pytest.raises(ConfigError, match="does not run with"):
            set_arguments(arguments(**refused), read_settings({"method": "ngram"}))
