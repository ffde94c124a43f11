"""`ngram_gpu`: equal to `ngram`, and nothing in it waits for the device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from specdec.interfaces import FinishReason
from specdec_plugin_ngram import NgramConfig
from specdec_plugin_ngram.gpu import NgramGpuProposer
from specdec_plugin_ngram.reference import draft

SYNCHRONISING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"}


class RefuseSynchronisation(TorchDispatchMode):
    """Raises on every operation whose result the host, or the shape of a tensor, depends on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in SYNCHRONISING, name
        if name.startswith("index"):
            flat = [item for arg in args for item in (arg if isinstance(arg, list | tuple) else [arg])]
            assert not any(isinstance(item, torch.Tensor) and item.dtype == torch.bool for item in flat), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("match", ["recent", "first"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_drafts_equal_those_of_the_host_version(make_feed, make_device_feed, delivery, match, data):
    shortest = data.draw(st.integers(1, 3))
    keys = {
        "prompt_lookup_min": shortest,
        "prompt_lookup_max": shortest + data.draw(st.integers(0, 3)),
        "match": match,
    }
    host, device = make_feed(**keys), make_device_feed(**keys)
    for _ in range(data.draw(st.integers(1, 8))):
        deliveries = {}
        for request_id in data.draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True)):
            held = len(host.texts.get(request_id, []))
            start = data.draw(st.one_of(st.just(held), st.integers(0, held)))
            token_ids = data.draw(st.lists(st.integers(0, 2), min_size=1 if start == 0 else 0, max_size=9))
            deliveries[request_id] = delivery(start, token_ids, data.draw(st.integers(0, 6)))
        assert device.step(deliveries) == host.step(deliveries)
        for leaving in data.draw(st.sets(st.sampled_from("abcd"), max_size=1)):
            for feed in (host, device):
                feed.proposer.finish([leaving], FinishReason.LENGTH)
                feed.texts.pop(leaving, None)


def test_texts_wider_than_one_view(make_device_feed):
    feed = make_device_feed(prompt_lookup_max=3, prompt_lookup_min=1)
    generator = torch.Generator().manual_seed(3)
    for count in [200, 70, 3, 400, 1, 2]:
        token_ids = torch.randint(0, 8, (count,), generator=generator).tolist()
        assert feed.append("a", *token_ids) == draft(feed.texts["a"], 5, 1, 3)


def test_a_full_context_is_held_to_the_last_token(make_device_feed):
    feed = make_device_feed(prompt_lookup_max=2)
    assert feed.append("a", *[1, 2] * 512, max_nodes=3) == [1, 2, 1]


def test_the_draft_context_caps_the_chain(make_device_feed):
    feed = make_device_feed(prompt_lookup_max=1, max_model_len=8)
    assert feed.append("a", 1, 2, 3, 4, 1) == [2, 3, 4]
    assert feed.append("a", 2, 3, 4, 1) == []


def test_a_text_longer_than_the_context_costs_no_other(make_device_feed, delivery):
    feed = make_device_feed(prompt_lookup_min=1, prompt_lookup_max=2)
    drafts = feed.step({"a": delivery(0, [7] * 1020), "b": delivery(0, [1, 2, 1])})
    assert drafts == {"a": [7] * 5, "b": [2, 1, 2, 1, 2]}
    drafts = feed.step(
        {"a": delivery(1020, [8] * 2000), "b": delivery(3, [2])}
    )  # as a host may do that asks for no draft
    assert drafts == {"a": [], "b": [1, 2, 1, 2, 1]}
    assert feed.step({"a": delivery(3020, [8], 0), "c": delivery(0, [4, 4])})["c"] == [4] * 5


@pytest.mark.parametrize("match", ["recent", "first"])
def test_no_operation_synchronises(make_feed_of, make_target_info, delivery, match):
    proposer = NgramGpuProposer(NgramConfig(num_speculative_tokens=3, match=match), make_target_info())
    proposer.load(None)
    feed = make_feed_of(proposer)
    with RefuseSynchronisation():
        feed.propose({"a": delivery(0, [1, 2, 3, 1]), "b": delivery(0, [4])})
        feed.propose({"b": delivery(1, [4, 4]), "a": delivery(2, [3, 1])})


def test_shapes_depend_on_nothing_that_is_on_the_device(make_feed_of, make_target_info, delivery):
    info = make_target_info("meta")  # tensors without data: whatever reads a value, or sizes by one, raises
    proposer = NgramGpuProposer(NgramConfig(num_speculative_tokens=3, max_model_len=100), info)
    proposer.load(None)
    result = make_feed_of(proposer).propose({"a": delivery(0, [1, 2]), "b": delivery(0, [4] * 97)})
    assert result.token_ids.shape == (2, 3)
    assert result.token_ids.device.type == "meta"
    assert result.num_nodes == (3, 3)  # so that no length is read from a device


@pytest.mark.gpu
def test_a_gpu_step_does_not_wait_for_the_host(make_feed_of, make_target_info, delivery):
    info = replace(make_target_info("cuda"), may_record=True)
    proposer = NgramGpuProposer(NgramConfig(num_speculative_tokens=3, prompt_lookup_max=2), info)
    proposer.load(None)
    feed = make_feed_of(proposer)
    feed.propose({"a": delivery(0, [1, 2, 3]), "b": delivery(0, [4, 4])})
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = feed.propose({"b": delivery(2, [4], 3), "a": delivery(3, [1, 2], 3)})
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.token_ids.tolist() == [[4, 4, 4], [3, 1, 2]]
