"""Where samples end and what of their text is shown: stop ids, stop strings across tokens, end of text, streaming."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.engines import engine_of, greedy, letter_tokenizer, make_llm, proposer_of, scripted, spelled

from specdec import FinishReason
from specdec.engine.sequence import Sequence, StopChecker
from specdec.text.detokenizer import IncrementalDetokenizer
from specdec.text.stop_strings import StopStrings

K = 6


@pytest.fixture(params=["none", "chain", "tree"])
def llm(request, subject):
    config = None
    if request.param != "none":
        config = scripted("Recorder", K, texts=subject.texts, shape=request.param)
    made = make_llm(subject.model, config, tokenizer=letter_tokenizer())
    if config is not None:
        proposer_of(made)
    return made


def audit(llm) -> None:
    if engine_of(llm).proposer is not None:
        assert proposer_of(llm).complaints == []
        assert proposer_of(llm).held == {}


def streamed(llm, prompt, params):
    """Return all outputs of a stream."""
    return list(llm.stream({"prompt_token_ids": prompt}, params))


@pytest.mark.parametrize("cut", [0, 1, 4, 9])
@pytest.mark.parametrize("includes", [False, True])
def test_stop_strings(subject, llm, cut, includes) -> None:
    """A stop string that begins in the middle of a token and ends in the middle of the next one."""
    for prompt, expected in zip(subject.prompts, subject.expected, strict=True):
        text = spelled(expected)
        stop = text[2 * cut + 1 : 2 * cut + 4]
        at = text.index(stop)
        stop_token = (at + len(stop) - 1) // 2  # the token that completes it
        params = greedy(32, stop=["zz", stop], include_stop_str_in_output=includes)
        outputs = streamed(llm, prompt, params)
        last = outputs[-1].outputs[0]
        assert last.token_ids == expected[: stop_token + 1]
        assert last.text == text[: at + len(stop) if includes else at]
        assert (last.finish_reason, last.stop_reason) == ("stop", stop)
        for before, after in itertools.pairwise(outputs):
            assert after.outputs[0].text.startswith(before.outputs[0].text)
            assert before.outputs[0].finish_reason is None
        for output in outputs:
            assert last.text.startswith(output.outputs[0].text)
            assert stop not in output.outputs[0].text or includes
        assert outputs[-1].metrics.num_accepted_tokens <= len(last.token_ids)
    audit(llm)


def test_the_earliest_of_several_stop_strings_holds(subject, llm) -> None:
    text = spelled(subject.expected[0])
    late, early = text[11:14], text[4:7]
    [output] = llm.generate({"prompt_token_ids": subject.prompts[0]}, greedy(32, stop=[late, early]))
    assert output.outputs[0].stop_reason == early
    assert output.outputs[0].text == text[: text.index(early)]


def test_text_that_could_become_a_stop_string_is_held_back(subject, llm) -> None:
    text = spelled(subject.expected[1])
    never = text[:7] + "z"  # begins like the text, but never comes
    outputs = streamed(llm, subject.prompts[1], greedy(32, stop=never))
    assert outputs[-1].outputs[0].text == text
    for output in outputs[:-1]:
        shown = output.outputs[0].text
        whole = spelled(output.outputs[0].token_ids)
        assert whole.startswith(shown)
        held = whole[len(shown) :]
        assert never.startswith(held)
        longest = max((n for n in range(8) if n <= len(whole) and whole.endswith(never[:n])), default=0)
        assert len(held) == longest


def test_a_stop_string_that_begins_before_min_tokens_ends_nothing(subject, llm) -> None:
    """Text of the first tokens counts for no stop string, however long one is; a later one that is whole does."""
    for prompt, expected in zip(subject.prompts, subject.expected, strict=True):
        text = spelled(expected)
        least = 5
        across = text[2 * least - 1 : 2 * least + 2]
        long = text[2 : 2 * least + 4]
        assert across not in text[2 * least : 24]
        for stop in (across, long):
            [output] = llm.generate([{"prompt_token_ids": prompt}], greedy(12, min_tokens=least, stop=stop))
            assert (output.outputs[0].token_ids, output.outputs[0].finish_reason) == (expected[:12], "length")
        after = text[2 * least : 2 * least + 3]
        [output] = llm.generate(
            [{"prompt_token_ids": prompt}], greedy(12, min_tokens=least, stop=[across, after])
        )
        assert (output.outputs[0].stop_reason, output.outputs[0].text) == (after, text[: 2 * least])
    audit(llm)


def test_a_stop_string_in_the_prompt_does_not_count(subject, llm) -> None:
    prompt, expected = subject.prompts[0], subject.expected[0]
    stop = spelled(prompt[-1:]) + spelled(expected[:1])
    [output] = llm.generate({"prompt_token_ids": prompt}, greedy(8, stop=[spelled(prompt[-2:]), stop]))
    text = spelled(expected[:8])
    if spelled(prompt[-2:]) not in text and stop not in text:
        assert output.outputs[0].token_ids == expected[:8]
        assert output.outputs[0].text == text


@pytest.mark.parametrize("includes", [False, True])
@pytest.mark.parametrize("has_stop_string", [False, True])
def test_stop_token_ids(subject, llm, includes, has_stop_string) -> None:
    for cut, (prompt, expected) in enumerate(zip(subject.prompts, subject.expected, strict=True)):
        stop = expected[3 * cut + 1]
        at = expected.index(stop)
        params = greedy(
            32,
            stop_token_ids=[stop],
            include_stop_str_in_output=includes,
            stop="zz" if has_stop_string else None,
        )
        last = streamed(llm, prompt, params)[-1].outputs[0]
        assert last.token_ids == expected[: at + 1]
        assert (last.finish_reason, last.stop_reason) == ("stop", stop)
        assert last.text == spelled(expected[: at + 1 if includes else at])
    audit(llm)


def test_end_of_text_and_ignore_eos(subject) -> None:
    for shape in (None, "chain", "tree"):
        config = None if shape is None else scripted("Recorder", K, texts=subject.texts, shape=shape)
        llm = make_llm(subject.model, config, tokenizer=letter_tokenizer())
        end = subject.expected[0][7]
        for watch_ids in (engine_of(llm),):
            assert watch_ids is not None
        object.__setattr__(llm._input_processor._info, "eos_token_ids", (end, 5))
        outputs = llm.generate(
            [{"prompt_token_ids": p} for p in subject.prompts],
            greedy(32, ignore_eos=False, stop_token_ids=[9]),
        )
        for output, expected in zip(outputs, subject.expected, strict=True):
            ends = [i for i, t in enumerate(expected) if t in (end, 5, 9)]
            done = output.outputs[0]
            if not ends:
                assert (done.token_ids, done.finish_reason) == (expected, "length")
                continue
            assert done.token_ids == expected[: ends[0] + 1]
            assert done.finish_reason == "stop"
            assert done.stop_reason == (9 if expected[ends[0]] == 9 else None)
            assert done.text == spelled(expected[: ends[0]])
        assert len(outputs[0].outputs[0].token_ids) <= 8
        ignoring = llm.generate(
            [{"prompt_token_ids": p} for p in subject.prompts], greedy(32, ignore_eos=True)
        )
        assert [o.outputs[0].token_ids for o in ignoring] == subject.expected
        if config is not None:
            proposer = proposer_of(llm)
            assert proposer.complaints == []
            reasons = {name: reason for name, reason, _ in proposer.finished}
            assert reasons[outputs[0].request_id] is FinishReason.STOP


def test_the_last_token_may_both_stop_and_fill_the_length(subject, llm) -> None:
    expected = subject.expected[0]
    at = next(i for i in range(1, 32) if expected[i] not in expected[:i] and i > 2)
    [output] = llm.generate(
        {"prompt_token_ids": subject.prompts[0]}, greedy(at + 1, stop_token_ids=[expected[at]])
    )
    assert output.outputs[0].finish_reason == "stop"
    assert output.outputs[0].token_ids == expected[: at + 1]


def test_what_the_proposer_learns_is_what_was_emitted(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", K, texts=subject.texts), tokenizer=letter_tokenizer())
    proposer = proposer_of(llm)
    stops = [spelled(e[5:7]) for e in subject.expected]
    outputs = llm.generate(
        [{"prompt_token_ids": p} for p in subject.prompts], [greedy(32, stop=stop) for stop in stops]
    )
    ended = {name: (reason, held) for name, reason, held in proposer.finished}
    assert len(proposer.finished) == len(outputs)
    for output in outputs:
        reason, held = ended[output.request_id]
        assert reason is FinishReason.STOP
        assert held == [*output.prompt_token_ids, *output.outputs[0].token_ids]
    assert proposer.complaints == []


def test_stop_strings_need_a_tokenizer(subject) -> None:
    with pytest.raises(ValueError, match="stop needs a tokenizer"):
        make_llm(subject.model).generate([subject.prompts[0]], greedy(4, stop="ab"))


def test_text_of_a_stream_is_that_of_the_whole(subject, llm) -> None:
    outputs = streamed(llm, subject.prompts[2], greedy(20))
    assert outputs[-1].outputs[0].text == spelled(subject.expected[2][:20])
    counts = [len(o.outputs[0].token_ids) for o in outputs]
    assert counts == sorted(set(counts))
    assert all(spelled(o.outputs[0].token_ids) == o.outputs[0].text for o in outputs)


@settings(max_examples=300, deadline=None)
@given(
    stops=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6),
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
)
def test_the_automaton_finds_what_a_search_finds(stops, pieces) -> None:
    automaton, state, text = StopStrings(tuple(stops)), 0, ""
    for piece in pieces:
        before, text = len(text), text + piece
        state, found = automaton.scan(state, piece)
        ends = [
            (at, stop)
            for stop in stops
            for at in range(len(text) - len(stop) + 1)
            if text.startswith(stop, at) and at + len(stop) > before
        ]
        assert found == (None if not ends else (min(ends)[0] - before, min(ends)[1]))
        tails = [
            n for n in range(len(text) + 1) if any(stop.startswith(text[len(text) - n :]) for stop in stops)
        ]
        assert automaton.num_held_back(state) == max(tails)


@pytest.mark.parametrize("num_stops", [1, 20_000])
@pytest.mark.slow
def test_a_token_takes_the_same_time_with_many_stop_strings(num_stops) -> None:
    stops = [f"stop {place:09d} " + "x" * 80 for place in range(num_stops)]
    params = greedy(400, stop=stops)
    tokenizer = letter_tokenizer()
    sequence = Sequence("r", np.array([1], np.int32), params, seed=0, sample_index=0, max_num_tokens=401)
    watch = StopChecker(params, (), IncrementalDetokenizer(tokenizer, [1], skip_special_tokens=True))
    begun = time.process_time()
    for place in range(200):
        assert watch.accept(sequence, [place % 20]) == [place % 20]
        sequence.append([place % 20], 0)
        assert watch.visible_text(sequence) == watch.text
    assert time.process_time() - begun < 1.0  # with a search for each of 20,000 it took minutes


def test_a_stop_string_that_began_too_early_is_neither_met_nor_held_back() -> None:
    tokenizer = letter_tokenizer()
    text = spelled([1, 2, 3, 4])
    params = greedy(9, stop=[text[2:6]], min_tokens=2)
    sequence = Sequence("r", np.array([0], np.int32), params, seed=0, sample_index=0, max_num_tokens=10)
    watch = StopChecker(params, (), IncrementalDetokenizer(tokenizer, [0], skip_special_tokens=True))
    for token_id in (1, 2, 3, 4):
        assert watch.accept(sequence, [token_id]) == [token_id]
        sequence.append([token_id], 0)
        assert (
            watch.visible_text(sequence) == watch.text == spelled([1, 2, 3, 4][: sequence.num_output_tokens])
        )
    assert sequence.finish_reason is None
    assert watch.accept(sequence, [2, 3, 4]) == [2, 3]
    assert sequence.stop_reason == text[2:6]
    assert watch.text == text
