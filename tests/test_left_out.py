"""Requests that a draft's cache has no room for: they are drafted for again when others have ended."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import LLM, SamplingParams
from specdec.engine.containment import guard
from specdec.engine.slot_pool import BlockAllocator
from specdec_runtime.drafting import RequestSlots

K = {"num_speculative_tokens": 4, "adaptive": False}
METHODS: dict[str, dict[str, Any]] = {
    "eagle": {"method": "eagle", "model": "zoo", **K},
    "eagle3": {"method": "eagle3", "model": "zoo", **K},
    "mtp": {"method": "mtp", "model": "zoo", **K},
    "tree": {"method": "eagle", "model": "zoo", "tree_top_k": 4, **K, "num_speculative_tokens": 24},
    "draft_model": {"method": "draft_model", "model": "zoo", **K},
    "composite": {
        "method": "composite",
        "policy": "longest",
        "proposers": [{"method": "ngram"}, {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4}],
    },
}
SIZES = [19, 22, 25, 28, 33, 38, 44, 50, 56, 62]
"""Blocks of 16 rows. The longest request needs 17, all together about 66."""
SHORT, LONG, AFTER = 60, 180, 100
"""Tokens of the others and of the one that runs on, and from where it should be drafted for again."""


def cases() -> list[Any]:
    """Methods and sizes; all of them are for the full level."""
    found = []
    for method in METHODS:
        for size in SIZES:
            marks = [] if (method, size) == ("eagle", 28) else [pytest.mark.slow]
            if size != 22:
                marks = marks and [pytest.mark.full]
            found.append(pytest.param(method, size, marks=marks, id=f"{method}-{size}"))
    return found


@pytest.mark.parametrize(("method", "size"), cases())
def test_who_was_left_out_is_drafted_for_again(method, size, monkeypatch) -> None:
    monkeypatch.setattr(guard, "_MIN_BUDGET_S", 30.0)  # a busy machine is no reason for a pause here
    arguments: dict[str, Any] = {"dtype": "float32", "max_num_seqs": 8, "max_model_len": 512}
    alone = LLM("zoo", speculative_config=METHODS[method], **arguments)
    ids = alone.get_tokenizer()(_source())["input_ids"]
    prompts = [{"prompt_token_ids": ids[200 * row : 200 * row + 60 + 7 * row]} for row in range(8)]
    with monkeypatch.context() as patch:
        make = RequestSlots.__init__

        def make_small(pool: RequestSlots, *args: Any) -> None:
            make(pool, *args)
            pool._blocks = BlockAllocator(size)

        patch.setattr(RequestSlots, "__init__", make_small)
        llm = LLM("zoo", speculative_config=METHODS[method], **arguments)
        last = 7  # it comes last, when there is no room
        outputs = llm.generate(prompts, [_params(LONG if row == last else SHORT) for row in range(8)])
    [expected] = alone.generate(prompts[last:], _params(LONG))
    output, counts = outputs[last], _counts(llm)
    assert output.outputs[0].token_ids == expected.outputs[0].token_ids
    after, wanted = (sum(each.outputs[0].is_from_draft[AFTER:]) for each in (output, expected))
    assert abs(after - wanted) <= 0.1 * wanted
    assert wanted > 40
    assert counts["specdec:num_preemptions"] == 0
    left_out = sum(sum(each.metrics.tokens_without_drafts.values()) for each in outputs)
    assert left_out == counts["specdec:tokens_without_drafts"]
    if size <= SIZES[-2]:
        assert counts["specdec:requests_left_out"] > 0
    if method in ("draft_model", "composite"):
        return  # one returns by itself, the other has drafts of another member
    assert any("no room" in reason for each in outputs for reason in each.metrics.tokens_without_drafts)
    assert counts["specdec:tokens_rerun"] >= 60 * counts["specdec:requests_returned"]


def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


def _counts(llm: LLM) -> dict[str, Any]:
    return {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}


def _source() -> str:
    with open(guard.__file__) as file:
        return file.read()
