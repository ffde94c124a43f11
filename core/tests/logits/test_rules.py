"""Every rule along drafted paths, against a naive row-by-row computation in which a path is plain output."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from speccheck.naive import Constraints, naive_logits

from specdec import ConfigError, SamplingParams, TargetInfo
from specdec.interfaces.row_block import RowBlock
from specdec.logits.pipeline import p_logits
from specdec.logits.rules import RequestRules, rules_of
from specdec.logits.rules.bans import BadWordsRule
from specdec.logits.rules.edits import Edits

VOCAB = 12
END = 11
INFO = TargetInfo(
    vocab_size=VOCAB, hidden_size=4, num_layers=1, max_model_len=64, dtype=torch.float32,
    device=torch.device("cpu"), eos_token_ids=(END,), tokenizer_fingerprint="", max_num_seqs=1,
)  # fmt: skip


def shifted(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Raises the id that follows the last output id, by more the longer the output is."""
    logits[((output[-1] if output else 0) + 1) % VOCAB] += 0.5 * len(output) + 0.5
    return logits


def lowered(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Lowers each id by how often it occurred; a new tensor."""
    return logits - torch.tensor([0.1 * output.count(i) for i in range(VOCAB)])


RULES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.7},
    "encouragement": {"repetition_penalty": 0.6},
    "presence": {"presence_penalty": 0.9},
    "frequency": {"frequency_penalty": -0.7},
    "bias": {"logit_bias": {3: 2.5, 7: -100.0}},
    "minimum": {"min_tokens": 4, "stop_token_ids": [2, 9]},
    "allowed": {"allowed_token_ids": [0, 1, 5, 6, END]},
    "processors": {"logits_processors": [shifted, lowered]},
    "everything": {
        "repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "logit_bias": {1: 1.0},
        "min_tokens": 3, "allowed_token_ids": [0, 1, 2, 5, 6, 8, END], "logits_processors": [shifted],
    },
}  # fmt: skip


def made_of(params: SamplingParams) -> RequestRules | None:
    ends = {END, *(params.stop_token_ids or ())}
    return rules_of(params, None, None, ends)


def sample_rules(params: SamplingParams) -> RequestRules:
    rules = made_of(params)
    assert rules is not None
    return rules


def path_to(node: int, nodes: Sequence[int], parents: Sequence[int] | None) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.insert(0, nodes[node])
        node = node - 1 if parents is None else parents[node]
    return path


token_ids = st.integers(0, VOCAB - 1)
drafts = st.lists(token_ids, max_size=6).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes), st.none() | st.tuples(*(st.integers(-1, j - 1) for j in range(len(nodes)))).map(list)
    )
)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=25, deadline=None)
@given(
    prompt=st.lists(token_ids, min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.lists(token_ids, max_size=3), drafts), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_a_drafted_path_counts_as_output(name, prompt, steps, seed) -> None:
    """Over several steps with the same rules: what one step leaves behind must not reach the next."""
    params = SamplingParams(temperature=0.0, max_tokens=40, **RULES[name])
    rules, output = sample_rules(params), []
    generator = torch.Generator().manual_seed(seed)
    for committed, (nodes, parents) in steps:
        output += committed
        logits = torch.randn(len(nodes) + 1, VOCAB, generator=generator) * 3
        before = logits.clone()
        block = RowBlock(params, nodes, parents, rules, np.array(prompt + output, np.int32), len(prompt))
        got = p_logits(logits, [block])
        assert torch.equal(logits, before), "raw logits are kept for log probabilities"
        for row in range(len(nodes) + 1):
            path = path_to(row - 1, nodes, parents)
            ends = Constraints(end_ids=(END,))
            want = naive_logits(before[row].tolist(), params, prompt, output + path, ends)
            assert got[row].tolist() == pytest.approx(want, abs=1e-4), (row, path)


@example(words=[[4], [1, 2, 3]], output=[0, 1, 2], draft=([], None))
@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.lists(token_ids, min_size=1, max_size=3), min_size=1, max_size=3),
    output=st.lists(token_ids, max_size=4),
    draft=drafts,
)
def test_bad_words_are_met_across_drafts(words, output, draft) -> None:
    nodes, parents = draft
    params = SamplingParams(temperature=0.0, max_tokens=40)
    committed = np.array([0, *output], np.int32)
    rules = RequestRules([BadWordsRule(words)], None)
    got = p_logits(
        torch.zeros(len(nodes) + 1, VOCAB), [RowBlock(params, nodes, parents, rules, committed, 1)]
    )
    for row in range(len(nodes) + 1):
        text = output + path_to(row - 1, nodes, parents)
        forbidden = {
            w[-1] for w in words if text[len(text) - len(w) + 1 :] == w[:-1] and len(text) >= len(w) - 1
        }
        assert row in rules.dead_rows or {i for i in range(VOCAB) if got[row, i] == -math.inf} == forbidden
        assert (row in rules.dead_rows) == (len(forbidden) == VOCAB)


def test_requests_of_one_batch_do_not_touch_each_other() -> None:
    plain = SamplingParams(temperature=0.7)
    ruled = SamplingParams(temperature=0.7, logit_bias={0: 5.0}, max_tokens=9)
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    one = RowBlock(ruled, [4], None, sample_rules(ruled), np.array([1, 2], np.int32), 2)
    together = p_logits(logits, [RowBlock(plain), one, RowBlock(plain, [3])])
    assert torch.equal(
        together[[0, 3, 4]], p_logits(logits[[0, 3, 4]], [RowBlock(plain), RowBlock(plain, [3])])
    )
    assert torch.equal(together[1:3], p_logits(logits[1:3], [one]))


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(
        st.tuples(st.sampled_from([None, *RULES]), st.lists(token_ids, min_size=1, max_size=5), drafts),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 1000),
)
def test_the_rules_of_all_requests_together_do_what_each_does_alone(texts, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(sum(len(nodes) + 1 for _, _, (nodes, _) in texts), VOCAB, generator=generator) * 3
    blocks = []
    for name, committed, (nodes, parents) in texts:
        params = SamplingParams(temperature=0.0, max_tokens=40, **({} if name is None else RULES[name]))
        rules = None if name is None else sample_rules(params)
        blocks.append(RowBlock(params, nodes, parents, rules, np.array(committed, np.int32), 1))
    together, start = p_logits(logits, blocks), 0
    for block in blocks:
        rows = slice(start, start + block.num_rows)
        assert torch.equal(together[rows], p_logits(logits[rows], [block]))
        start = rows.stop


def test_numbers_that_overflow_are_the_greatest_not_infinite() -> None:
    params = SamplingParams(temperature=1.0, repetition_penalty=1e-30, logit_bias={3: 1e300, 4: -1e300})
    logits = torch.full((2, VOCAB), 1e20)
    block = RowBlock(params, [2], None, sample_rules(params), np.array([1, 2], np.int32), 2)
    law = torch.softmax(p_logits(logits, [block]), -1)
    assert torch.isfinite(law).all()
    assert law[:, [1, 2]].sum(-1).tolist() == [1.0, 1.0]


def test_rows_from_which_nothing_can_be_chosen_are_named_and_left_alone() -> None:
    params = SamplingParams(temperature=0.0, allowed_token_ids=[END], min_tokens=2, max_tokens=5)
    rules = sample_rules(params)
    logits = torch.randn(3, VOCAB)
    got = p_logits(logits, [RowBlock(params, [END, END], None, rules, np.array([1], np.int32), 1)])
    assert sorted(rules.dead_rows) == [0, 1], "the third row is long enough"
    assert "exclude each other" in rules.dead_rows[0]
    assert torch.equal(got[:2], logits[:2])
    assert torch.isfinite(got[2]).nonzero().flatten().tolist() == [END]


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (lambda output, logits: 1 / 0, "ZeroDivisionError"),
        (lambda output, logits: logits[:3], r"returned \(3,\) for logits of shape \(12,\)"),
        (lambda output, logits: None, "returned NoneType"),
        (lambda output, logits: logits * math.nan, "not numbers"),
    ],
)
def test_a_broken_processor_ends_its_own_request(processor, reason) -> None:
    params = SamplingParams(temperature=0.0, logits_processors=[processor])
    rules = sample_rules(params)
    logits = torch.randn(1, VOCAB)
    got = p_logits(
        logits, [RowBlock(params, rules=rules, committed=np.array([1], np.int32), num_prompt_tokens=1)]
    )
    assert torch.equal(got, logits)
    assert re.search(reason, rules.dead_rows[0])


def test_a_processor_of_three_arguments_gets_the_prompt() -> None:
    seen = []

    def recorded(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
        seen.append((prompt, output))
        return logits

    params = SamplingParams(temperature=0.0, logits_processors=[recorded])
    block = RowBlock(params, [4], None, sample_rules(params), np.array([1, 2, 3], np.int32), 2)
    p_logits(torch.randn(2, VOCAB), [block])
    assert seen == [([1, 2], [3]), ([1, 2], [3, 4])]


def test_a_processor_may_force_an_id() -> None:
    def force(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[5] = math.inf
        return logits

    params = SamplingParams(temperature=1.0, logits_processors=[force])
    rules = sample_rules(params)
    block = RowBlock(params, rules=rules, committed=np.array([1], np.int32), num_prompt_tokens=1)
    got = torch.softmax(p_logits(torch.randn(1, VOCAB), [block]), -1)
    assert got[0, 5] == 1.0
    assert not rules.dead_rows


def test_without_rules_there_is_nothing_to_apply() -> None:
    assert made_of(SamplingParams(temperature=0.3, top_k=4, seed=1, stop="x")) is None


def test_an_error_at_a_drafted_path_is_that_paths_own() -> None:
    def picky(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        if 7 in output:
            raise KeyError("7 is not in my automaton")
        return logits + len(output)

    params = SamplingParams(temperature=0.0, logits_processors=[picky], logit_bias={3: 1.0})
    rules = sample_rules(params)
    logits = torch.randn(5, VOCAB)
    block = RowBlock(params, [5, 7, 6, 1], [-1, -1, 1, 0], rules, np.array([1], np.int32), 1)
    got = p_logits(logits, [block])
    assert set(rules.dead_rows) == set(rules.causes) == {2, 3}
    assert "7 is not in my automaton" in rules.dead_rows[2]
    assert torch.equal(got[2:4], logits[2:4])
    bias = torch.zeros(VOCAB)
    bias[3] = 1.0
    for row, depth in ((0, 0), (1, 1), (4, 2)):
        assert torch.equal(got[row], logits[row] + depth + bias)


def test_errors_of_other_rules_are_not_blamed_on_processors() -> None:
    class Broken:
        def add_to(self, edits: Edits, block: RowBlock) -> None:
            raise IndexError("our own mistake")

    params = SamplingParams(temperature=0.0)
    rules = RequestRules([Broken()], None)
    whole = [RowBlock(params, [1], None, rules, np.array([1], np.int32)), RowBlock(params)]
    logits = torch.randn(3, VOCAB)
    assert torch.equal(p_logits(logits, whole), logits), "the other request is served"
    reason = "applying its sampling parameters failed: IndexError: our own mistake"
    assert rules.dead_rows == {0: reason, 1: reason}
    assert {type(cause) for cause in rules.causes.values()} == {IndexError}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_a_processor_may_return_another_type_of_number(dtype) -> None:
    params = SamplingParams(temperature=0.0, logits_processors=[lambda output, logits: logits.to(dtype)])
    block = RowBlock(params, [1], None, sample_rules(params), np.array([1], np.int32), 1)
    logits = torch.randint(-9, 9, (2, VOCAB)).float()
    assert torch.equal(p_logits(logits, [block]), logits)


@pytest.mark.parametrize(
    ("processor", "told"),
    [
        (max, "does not say which arguments"),
        (lambda logits: logits, "cannot be called with"),
        (5, "callable"),
    ],
)
def test_what_cannot_be_called_is_refused_at_once(processor, told) -> None:
    with pytest.raises(ConfigError, match=told):
        SamplingParams(logits_processors=[processor])


@pytest.mark.parametrize("name", ["bias", "presence"])
def test_rules_do_not_depend_on_the_default_type_of_numbers(name) -> None:
    params = SamplingParams(temperature=0.0, **RULES[name])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        block = RowBlock(params, [1], None, sample_rules(params), np.array([1, 2], np.int32), 1)
        got = p_logits(torch.zeros(2, VOCAB, dtype=torch.float32), [block])
        assert got.dtype is torch.float32
        assert (got != 0).any()
    finally:
        torch.set_default_dtype(before)


def test_a_row_takes_the_same_time_with_many_bad_words() -> None:
    words = [[9 + place % 5000, 9 + place // 5000, 3] for place in range(50_000)]
    rules = RequestRules([BadWordsRule(words)], None)
    committed = np.array([0, 1, 2, 9, 18], np.int32)
    block = RowBlock(SamplingParams(temperature=0.0), [5, 6, 7, 8], None, rules, committed, 1)
    logits = torch.zeros(5, VOCAB)
    begun = time.process_time()
    for _ in range(100):
        out = p_logits(logits, [block])
    assert time.process_time() - begun < 1.0  # comparing with each of them took five seconds
    assert [(out[row] == -math.inf).nonzero().flatten().tolist() for row in (0, 1)] == [[3], []]
