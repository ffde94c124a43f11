"""What is taken in, forgotten, learnt and dropped."""

import pytest

from specdec import SamplingParams
from specdec.interfaces import Capability, FinishReason, RequestArgs
from specdec_plugin_suffix import SuffixProposer, hooks
from specdec_plugin_suffix.config import SuffixArgs
from specdec_plugin_suffix.memory import TOKENS_PER_STEP
from specdec_plugin_suffix.request import PROMPT_TOKENS

PHRASE = [11, 12, 13, 14, 15]


def num_responses(feed) -> int:
    return len(feed.proposer._trees._cache)


def running(feed) -> set[str]:
    """Return the requests that have a tree."""
    made = feed.proposer._trees._cache
    return set(made._library.active_requests) if hasattr(made, "_library") else set(made._requests)


def test_a_repetition_of_the_own_text_is_drafted(make_feed) -> None:
    feed = make_feed()
    assert feed.append("a", 1, 2, 3, 4, 5) == []
    assert feed.append("a", 1, 2, 3) == [4, 5, 1]
    assert feed.confidence() == pytest.approx([1 / 2, 1.0, 1.0])  # the match itself has occurred twice


def test_confidence_is_given_the_parent(make_feed) -> None:
    feed = make_feed()
    feed.learn("x", 1, 2, 3, 4)
    feed.learn("y", 1, 2, 3, 5)
    feed.learn("z", 1, 2, 6, 7)
    feed.learn("w", 1, 2, 3, 4)
    assert feed.append("a", 9, 1, 2) == [3, 4]
    assert feed.confidence() == pytest.approx([3 / 4, 2 / 3])


def test_a_tree_has_several_branches(make_feed) -> None:
    feed = make_feed(use_tree_spec=True, suffix_decoding_max_spec_factor=2.0)
    feed.learn("x", 1, 2, 3, 4)
    feed.learn("y", 1, 2, 3, 4)
    feed.learn("z", 1, 2, 5, 6)
    assert feed.append("a", 9, 1, 2) == [3, 4, 5, 6]
    assert feed.draft.parents.tolist() == [[-1, 0, -1, 2]]
    assert feed.confidence() == pytest.approx([2 / 3, 1.0, 1 / 3, 1.0])


def test_a_tree_is_no_deeper_than_the_context_of_the_draft(make_feed, delivery) -> None:
    feed = make_feed(use_tree_spec=True, suffix_decoding_max_spec_factor=2.0, max_model_len=4)
    for name, rest in (("x", (3, 4)), ("y", (3, 4)), ("z", (5, 6))):
        feed.learn(name, 1, 2, *rest)
    assert feed.step({"a": delivery(0, [9, 1, 2], 4)}) == {"a": [3, 5]}
    assert feed.draft.parents.tolist() == [[-1, -1]]
    assert feed.step({"a": delivery(3, [3], 4)}) == {"a": []}


def test_caps_hold(make_feed, delivery) -> None:
    feed = make_feed(max_model_len=12)
    feed.append("a", *PHRASE)
    assert feed.step({"a": delivery(5, [11, 12, 13], 2)}) == {"a": [14, 15]}
    assert feed.step({"a": delivery(8, [], 1)}) == {"a": [14]}
    assert feed.append("a", 14, 15) == [11, 12]  # the draft's context has 12 tokens
    assert feed.append("a", 11, 12) == []


def test_a_request_may_have_limits_of_its_own(make_feed) -> None:
    feed = make_feed()
    text = (1, 2, 3, 4, 5, 1, 2, 3)
    assert feed.append("a", *text) == [4, 5, 1]
    feed.params = SamplingParams().model_copy(
        update={"speculative": {"args": SuffixArgs(max_spec_factor=0.4)}}
    )
    assert feed.append("b", *text) == [4]
    feed.params = SamplingParams().model_copy(
        update={"speculative": {"args": RequestArgs()}}
    )  # of another method
    assert feed.append("c", *text) == [4, 5, 1]
    mixed = (1, 2, 1, 3, 1, 4, 1)
    feed.params = SamplingParams().model_copy(
        update={"speculative": {"args": SuffixArgs(min_token_prob=0.9)}}
    )
    assert feed.append("d", *mixed) == []
    feed.params = SamplingParams()
    assert feed.append("e", *mixed) != []


def test_rows_without_a_draft_still_take_in_tokens(make_feed) -> None:
    feed = make_feed()
    assert feed.append("a", *PHRASE, max_nodes=0) == []
    assert feed.append("a", 11, 12) == [13, 14]


def test_redelivery_forgets_from_there(make_feed, delivery) -> None:
    feed = make_feed()
    feed.append("a", *PHRASE, 11, 12)
    assert feed.step({"a": delivery(3, [31, 11, 12])}) == {"a": [13, 31]}
    assert feed.step({"a": delivery(0, [12, 13])}) == {"a": []}
    assert running(feed) == {"a"}


def test_a_hole_in_the_delivery_is_an_error_that_names_the_request(make_feed, delivery) -> None:
    feed = make_feed()
    feed.append("a", 1, 2)
    with pytest.raises(ValueError, match="request 'a': new tokens start at position 4, but only 2"):
        feed.step({"a": delivery(4, [1])})


def test_a_response_is_learnt_at_its_end(make_feed) -> None:
    feed = make_feed()
    feed.append("x", 21, 22)
    feed.append("x", *PHRASE)
    assert feed.append("beside", 11, 12, 13) == []
    feed.finish("x")
    feed.settle()
    assert feed.append("beside", max_nodes=8) == [14, 15]


@pytest.mark.parametrize("num_first", [1, 9, 20, 22])
def test_of_a_prompt_its_end_is_learnt(make_feed, num_first) -> None:
    """However the prompt is delivered. Of a question asked again the answer is drafted before it has begun."""
    feed = make_feed()
    prompt = list(range(100, 120))
    text = [*prompt, *PHRASE]
    feed.num_prompt_tokens = len(prompt)
    feed.append("x", *text[:num_first])
    feed.append("x", *text[num_first:])
    feed.finish("x")
    feed.settle()
    assert feed.append("again", *prompt) == PHRASE
    assert feed.append("end", 9, *prompt[-PROMPT_TOKENS:][:2]) == prompt[-PROMPT_TOKENS:][2:4]
    assert feed.append("before", 9, *prompt[:4]) == []
    assert feed.append("before that", 9, *prompt[6:8]) == []


def test_a_prompt_without_a_response_is_not_learnt(make_feed) -> None:
    feed = make_feed()
    feed.append("x", 21, 22)
    feed.finish("x", FinishReason.LENGTH)
    feed.settle()
    assert not feed.proposer._trees.memory.responses


def test_a_redelivered_response_is_learnt_once(make_feed, delivery) -> None:
    feed = make_feed()
    feed.append("x", 21, 22, 11, 12, 18, 19)
    feed.step({"x": delivery(4, [13, 14])})
    feed.step({"x": delivery(0, [21])})
    feed.step({"x": delivery(1, [22, 11, 12, 13])})
    feed.append("x", 14)
    feed.finish("x", FinishReason.LENGTH)
    assert [list(each) for each in feed.proposer._trees.memory.responses.values()] == [
        [21, 22, 11, 12, 13, 14]
    ]


@pytest.mark.parametrize("reason", FinishReason)
def test_only_good_ends_teach(make_feed, reason) -> None:
    feed = make_feed()
    feed.append("x", 21, 22, *PHRASE)
    feed.finish("x", reason)
    feed.settle()
    is_good = reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert feed.append("later", 9, 11, 12) == ([13, 14] if is_good else [])
    assert num_responses(feed) == is_good


def test_nothing_is_left_of_requests_that_end(make_feed) -> None:
    feed = make_feed()
    for turn, reason in enumerate(FinishReason):
        feed.append(f"request {turn}", 1, 2, *PHRASE)
        feed.append(f"request {turn}", 3)
        feed.finish(f"request {turn}", reason)
    feed.settle()
    assert len(feed.proposer._trees) == 0
    assert not running(feed)
    assert len(feed.proposer._trees.memory.responses) == num_responses(feed) == 2


def test_a_running_request_is_not_in_the_global_tree(make_feed) -> None:
    feed = make_feed()
    feed.append("x", 1, 2, *PHRASE)
    feed.append("x", 3)
    assert not num_responses(feed)


def test_the_oldest_response_leaves_first(make_feed) -> None:
    feed = make_feed(suffix_decoding_max_cached_requests=2)
    feed.learn("x", 31, 32, 33)
    feed.learn("y", 41, 42, 43)
    feed.learn("z", 51, 52, 53)
    feed.settle()
    assert feed.append("a", 9, 31, 32) == []
    assert feed.append("b", 9, 41, 42) == [43]
    assert feed.append("c", 9, 51, 52) == [53]
    assert num_responses(feed) == 2


def test_with_no_responses_kept_only_the_own_text_counts(make_feed) -> None:
    feed = make_feed(suffix_decoding_max_cached_requests=0)
    feed.learn("x", *PHRASE)
    assert feed.append("a", 9, 11, 12) == []
    assert feed.append("a", 13, 9, 11, 12) == [13, 9, 11]
    assert not feed.proposer._trees.memory.responses


def test_long_responses_enter_and_leave_in_pieces(make_feed) -> None:
    feed = make_feed(suffix_decoding_max_cached_requests=1)
    memory = feed.proposer._trees.memory
    feed.append("x", 21, 22)
    feed.append("x", *(token % 900 for token in range(2 * TOKENS_PER_STEP + 10)))
    feed.finish("x")
    feed.settle()
    assert not memory.is_settled
    assert feed.append("beside", 5, 3, 4) == [5, 6]  # as far as it is learnt
    feed.append("y", 21, 22, 31, 32, 33)
    feed.finish("y")  # the first is dropped, entered in part
    feed.settle()
    assert not memory.is_settled
    feed.settle()
    assert memory.is_settled
    assert [list(each) for each in memory.responses.values()] == [[21, 22, 31, 32, 33]]
    assert num_responses(feed) == 1
    assert running(feed) == {"beside"}


def test_a_dropped_response_that_was_never_entered(make_feed) -> None:
    feed = make_feed(suffix_decoding_max_cached_requests=1)
    for name, phrase in (("x", (31, 32, 33)), ("y", (41, 42, 43)), ("z", (51, 52, 53))):
        feed.append(name, 1, 2, *phrase)
    for name in ("x", "y", "z"):
        feed.finish(name)
    feed.settle()
    assert feed.append("a", 9, 51, 52) == [53]
    assert feed.append("b", 9, 31, 32) == feed.append("c", 9, 41, 42) == []


def test_hook_names_and_capabilities(make_proposer) -> None:
    assert hooks.specdec_register_proposers() is SuffixProposer
    assert make_proposer().capabilities == {Capability.LATE_DRAFTS}
    assert make_proposer(use_tree_spec=True).capabilities == {Capability.TREE, Capability.LATE_DRAFTS}
