"""The specification itself, against vLLM's documented examples and an independent matcher."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin_ngram.reference import draft


def earliest_by_kmp(tokens, max_nodes, shortest, longest):
    """Prompt lookup as vLLM does it: the failure function of the reversed text, capped at `longest`."""
    flipped = tokens[::-1]
    failure = [0] * longest
    best, best_end, matched = 0, 0, 0
    index = 1
    while index < len(flipped):
        if flipped[matched] == flipped[index]:
            matched += 1
            if matched >= best:
                best, best_end = matched, index
            if index < longest:
                failure[index] = matched
            if matched == longest:
                matched = failure[longest - 1]
            index += 1
        elif matched:
            matched = failure[matched - 1]
        else:
            index += 1
    if best < shortest:
        return []
    source = len(tokens) - 1 - best_end + best
    return tokens[source : source + max_nodes]


def test_examples_documented_by_vllm():
    def first(tokens, shortest, longest, max_nodes):
        return draft(tokens, max_nodes, shortest, longest, "first")

    assert first([1, 2, 3, 4, 1, 2, 3, 5, 6], 2, 2, 2) == []
    assert first([1, 2, 3, 4, 1, 2, 3], 2, 2, 3) == [4, 1, 2]
    assert first([1, 2, 3, 4, 1, 2, 3], 2, 2, 2) == [4, 1]
    assert first([1, 2, 3, 4, 1, 2, 3], 1, 1, 3) == [4, 1, 2]
    assert first([1, 3, 6, 2, 3, 4, 1, 2, 3], 2, 2, 3) == [4, 1, 2]
    assert first([1, 3, 6, 2, 3, 4, 1, 2, 3], 1, 1, 2) == [6, 2]  # the earliest of two
    assert first([1, 2, 3, 4, 2, 3], 2, 3, 4) == [4, 2, 3]  # fewer where the text ends


def test_recent_takes_the_last_occurrence_and_reads_on_in_itself():
    assert draft([1, 3, 6, 2, 3, 4, 1, 2, 3], 2, 1, 1) == [4, 1]
    assert draft([9, 7, 7], 4, 1, 1) == [7, 7, 7, 7]
    assert draft([1, 2, 1, 2], 5, 2, 3) == [1, 2, 1, 2, 1]
    assert draft([9, 7, 7], 4, 1, 1, "first") == [7]


def test_the_longest_match_wins_over_a_later_shorter_one():
    assert draft([1, 2, 3, 8, 2, 3, 9, 1, 2, 3], 2, 1, 3) == [8, 2]
    assert draft([1, 2, 3, 8, 2, 3, 9, 1, 2, 3], 2, 1, 2) == [9, 1]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_first_is_what_kmp_finds(tokens, shortest, extra, max_nodes):
    longest = shortest + extra
    assert draft(tokens, max_nodes, shortest, longest, "first") == earliest_by_kmp(
        tokens, max_nodes, shortest, longest
    )
