"""Drafts of the trees are those that counting words gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.interfaces import FinishReason
from specdec_plugin_suffix.reference import Rules, drafts, tree_probs

TEXTS = st.integers(1, 4).flatmap(lambda size: st.lists(st.integers(0, size), min_size=1, max_size=30))
RESPONSES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=15), max_size=3)
RULES = st.builds(
    Rules,
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.17, 0.55, 1.0]),
)


def test_examples() -> None:
    def chains(text, responses, *rules):
        return {path: set(probs) for path, probs in drafts(text, responses, Rules(*rules)).items()}

    twice = [[1, 2, 5, 6], [1, 2, 5, 8]]
    assert chains([1, 2, 3, 4, 1, 2, 3], [], 8, 24) == {(4, 1, 2): {(0.5, 0.5, 0.5)}}
    assert chains([1, 2, 3], [], 8, 24) == {(): {()}}
    assert chains([7, 1, 2], twice, 8, 24) == {(5, 6): {(1.0, 0.5)}, (5, 8): {(1.0, 0.5)}}
    assert chains([7, 1, 2], twice, 8, 24, 0.5) == {(5,): {(1.0,)}}  # a token for two that match
    assert chains([7, 1, 2], twice, 8, 24, 1.0, 0.6) == {(5,): {(1.0,)}}  # the next one is too unlikely
    assert chains([7, 1, 2], twice[:1], 8, 3) == {(5,): {(1.0,)}}  # a tree of depth 3
    assert tree_probs([7, 1, 2], twice, Rules(8, 24, 2.0)) == [1.0, 0.5, 0.5]


def fed(make_feed, text, responses, rules, **keys):
    feed = make_feed(
        suffix_decoding_max_tree_depth=rules.depth,
        suffix_decoding_max_spec_factor=rules.max_spec_factor,
        suffix_decoding_min_token_prob=rules.min_token_prob,
        suffix_decoding_time_budget_ms=1e6,
        **keys,
    )
    feed.num_prompt_tokens = 0
    for number, response in enumerate(responses):
        feed.append(f"earlier {number}", *response)
        feed.finish(f"earlier {number}", FinishReason.LENGTH)
    feed.settle()
    middle = len(text) // 2
    feed.append("now", *text[:middle])
    return feed, feed.append("now", *text[middle:], max_nodes=rules.max_nodes)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, responses=RESPONSES, rules=RULES)
def test_chains(make_feed, text, responses, rules) -> None:
    feed, drafted = fed(make_feed, text, responses, rules)
    allowed = drafts(text, responses, rules)
    assert tuple(drafted) in allowed
    probs = np.cumprod(feed.confidence())
    assert any(probs == pytest.approx(each, abs=1e-5) for each in allowed[tuple(drafted)])


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, responses=RESPONSES, rules=RULES)
def test_trees(make_feed, text, responses, rules) -> None:
    feed, drafted = fed(make_feed, text, responses, rules, use_tree_spec=True)
    parents = feed.draft.parents[0].tolist()
    probs = []
    for node, share in enumerate(feed.confidence()):
        assert parents[node] < node
        probs.append(share * (probs[parents[node]] if parents[node] >= 0 else 1.0))
    assert len({(parent, token) for parent, token in zip(parents, drafted, strict=True)}) == len(drafted)
    assert probs == sorted(probs, reverse=True) or probs == pytest.approx(
        sorted(probs, reverse=True), abs=1e-5
    )
    assert sum(probs) == pytest.approx(sum(tree_probs(text, responses, rules)), abs=1e-4)
