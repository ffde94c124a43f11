"""`ngram`: the incremental index against the rescanning reference, and the life of its state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.interfaces import Capability, FinishReason
from specdec_plugin_ngram import NgramProposer, gpu_hooks, hooks, kernels
from specdec_plugin_ngram.gpu import NgramGpuProposer
from specdec_plugin_ngram.index import NgramIndex
from specdec_plugin_ngram.reference import draft

LENGTHS = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda pair: (pair[0], sum(pair)))


@st.composite
def histories(draw):
    """Steps of up to four requests: any deliveries, rewinds, joins and leaves."""
    alphabet = draw(st.integers(1, 4))
    tokens = st.lists(st.integers(0, alphabet - 1), max_size=12)
    row = st.tuples(st.one_of(st.none(), st.floats(0, 1)), tokens, st.integers(0, 7))
    step = st.dictionaries(st.sampled_from("abcd"), row, min_size=1)
    return draw(st.lists(st.tuples(step, st.sets(st.sampled_from("abcd"), max_size=1)), max_size=14))


def run_history(feed, delivery, history, check):
    for rows, leaving in history:
        deliveries = {}
        for request_id, (rewind, token_ids, max_nodes) in rows.items():
            held = len(feed.texts.get(request_id, []))
            start = held if rewind is None else int(rewind * held)
            deliveries[request_id] = delivery(start, token_ids, max_nodes)
        drafts = feed.step(deliveries)
        for request_id, drafted in drafts.items():
            check(feed.texts[request_id], deliveries[request_id].max_nodes, drafted)
        feed.proposer.finish([*leaving, "never seen"], FinishReason.STOP)
        for request_id in leaving:
            feed.texts.pop(request_id, None)


@pytest.mark.parametrize("hash_mask", [kernels.ALL_HASH_BITS, 3, 0], ids=["hash", "few-bits", "no-hash"])
@pytest.mark.parametrize("match", ["recent", "first"])
@settings(max_examples=120, deadline=None)
@given(history=histories(), lengths=LENGTHS)
@pytest.mark.sampled(2, slow=4)
def test_drafts_are_those_of_the_reference(make_feed, delivery, history, lengths, match, hash_mask):
    shortest, longest = lengths
    feed = make_feed(prompt_lookup_min=shortest, prompt_lookup_max=longest, match=match)
    feed.proposer._index = NgramIndex(shortest, longest, keeps_first=match == "first", hash_mask=hash_mask)

    def check(text, max_nodes, drafted):
        assert drafted == draft(text, max_nodes, shortest, longest, match)

    run_history(feed, delivery, history, check)


@pytest.mark.parametrize("hash_mask", [kernels.ALL_HASH_BITS, 15])
def test_long_texts_outgrow_their_segments(make_feed, hash_mask):
    rng = np.random.default_rng(7)
    feed = make_feed(prompt_lookup_min=1, prompt_lookup_max=4)
    feed.proposer._index = NgramIndex(1, 4, hash_mask=hash_mask)
    for count in [3, 180, 20, 1, 1, 400, 2, 1500, 1, 90]:
        for request_id in ("a", "b"):
            drafted = feed.append(request_id, *rng.integers(0, 9, count).tolist())
            assert drafted == draft(feed.texts[request_id], 5, 1, 4)


def test_rows_without_a_draft_still_take_in_tokens(make_feed):
    feed = make_feed(prompt_lookup_max=2)
    assert feed.append("a", 1, 2, 3, max_nodes=0) == []
    assert feed.append("a", 1, max_nodes=0) == []
    assert feed.append("a", 2, max_nodes=2) == [3, 1]


def test_a_step_without_new_tokens_repeats_the_draft(make_feed):
    feed = make_feed(prompt_lookup_max=2)
    assert feed.append("a", 1, 2, 3, 1, 2) == [3, 1, 2, 3, 1]
    assert feed.append("a", max_nodes=2) == [3, 1]


def test_depth_and_the_draft_context_cap_the_chain(make_feed, delivery):
    feed = make_feed(prompt_lookup_max=1, max_model_len=8)
    assert feed.append("a", 1, 2, 3, 4, 1) == [2, 3, 4]
    assert feed.append("a", 2, 3, 4) == []
    assert feed.append("a", 1) == []


def test_a_hole_in_the_delivery_is_an_error_that_names_the_request(make_feed, delivery):
    feed = make_feed()
    feed.append("a", 1, 2)
    with pytest.raises(ValueError, match="request 'a': new tokens start at position 4, but only 2"):
        feed.step({"a": delivery(4, [1])})


def test_counts_must_fit_the_tokens():
    index = NgramIndex(1, 1)
    with pytest.raises(ValueError, match="1 new tokens but counts"):
        index.step(["a"], [0], [2], np.zeros(1, dtype=np.int32), [1], [1])


def test_finished_requests_free_their_memory_for_the_next(make_feed):
    feed = make_feed(prompt_lookup_min=2, prompt_lookup_max=3)
    index = feed.proposer._index
    sizes = set()
    for turn in range(20):
        request_id = f"turn {turn}"
        assert feed.append(request_id, *range(900), max_nodes=3) == []
        assert feed.append(request_id, 1, 2, max_nodes=3) == [3, 4, 5]
        assert len(index) == 1
        feed.proposer.finish([request_id], FinishReason.ABORT)
        assert len(index) == 0
        sizes.add((index._pool.tokens.size, index._pool.tables.size, index._states.size))
    assert len(sizes) == 1


def test_more_requests_than_the_first_table_of_states_holds(make_feed, delivery):
    feed = make_feed(prompt_lookup_max=1)
    names = [f"request {number}" for number in range(50)]
    feed.step({name: delivery(0, [10 + number, 1, 2, 10 + number]) for number, name in enumerate(names)})
    drafts = feed.step({name: delivery(4, [1], 1) for name in reversed(names)})
    assert all(drafted == [2] for drafted in drafts.values())


def test_load_compiles_everything_that_steps_need(make_feed):
    feed = make_feed(prompt_lookup_max=2)
    feed.proposer.load(None)
    before = list(kernels.run_step.signatures)
    feed.append("a", 1, 2, 3, max_nodes=0)
    feed.append("a", 1, 2, max_nodes=4)
    assert kernels.run_step.signatures == before
    assert len(before) == 1


def test_hook_capabilities_and_names():
    assert hooks.specdec_register_proposers() is NgramProposer
    assert gpu_hooks.specdec_register_proposers() is NgramGpuProposer
    assert (NgramProposer.name, NgramGpuProposer.name) == ("ngram", "ngram_gpu")
    assert NgramProposer.capabilities == {Capability.LATE_DRAFTS}
    assert NgramGpuProposer.capabilities == {Capability.REQUEST_TABLE, Capability.BEFORE_VERDICT}
