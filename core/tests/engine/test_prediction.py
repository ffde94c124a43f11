"""Predicted outputs: the place in a prediction is found again after every kind of edit, and nothing changes the output."""

from __future__ import annotations

import random
from collections import Counter
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.engines import engine_of, greedy, letter_tokenizer, make_llm, scripted, tokens_of
from speccheck.models import few_ids
from speccheck.naive import Constraints, text_probs
from speccheck.texts import excess_of_texts

from specdec import ConfigError, SamplingParams
from specdec.adaptive.prediction import MOST_DRAFTED, Prediction, PredictionCursor

VOCAB = 400


def steps_of(prediction: list[int], output: list[int]) -> tuple[int, int]:
    """Return how many steps an output takes with a prediction, and how many tokens are drafted in vain."""
    cursor, done, steps, wasted = PredictionCursor(Prediction(prediction)), 0, 0, 0
    while done < len(output):
        draft = cursor.draft(len(output) - done - 1)
        accepted = 0
        while accepted < len(draft) and draft[accepted] == output[done + accepted]:
            accepted += 1
        if draft:
            cursor.observe(len(draft), accepted)
        done += accepted + 1
        cursor.advance(output[:done], accepted + 1)
        steps, wasted = steps + 1, wasted + len(draft) - accepted
    return steps, wasted


def text(length: int, seed: int, vocab: int = VOCAB) -> list[int]:
    """Return a text in which some tokens are as frequent as in code."""
    return [min(int(random.Random(f"{seed} {i}").paretovariate(0.6)), vocab) for i in range(length)]


def test_an_exact_prediction_takes_one_step_for_each_full_draft() -> None:
    original = text(400, seed=0)
    steps, wasted = steps_of(original, original)
    assert steps <= 400 // (MOST_DRAFTED + 1) + 3
    assert wasted == 0


EDITS = {
    "inserted": (lambda t: t[:200] + text(30, seed=9) + t[200:], 30),
    "deleted": (lambda t: t[:100] + t[300:], 0),
    "replaced": (lambda t: t[:150] + text(40, seed=9) + t[170:], 40),
    "begins with words": (lambda t: text(20, seed=9) + t, 20),
    "one name renamed to a longer one": (
        lambda t: [x for old in t for x in ([501, 502] if old == 7 else [old])],
        0,
    ),
    "moved": (lambda t: t[200:] + t[:200], 0),
}


@pytest.mark.parametrize("name", EDITS)
def test_the_place_is_found_again_after_an_edit(name: str) -> None:
    """New tokens take a step each, an edit some steps until the place is found, the rest full drafts."""
    edit, num_new = EDITS[name]
    for seed in range(8):
        original = text(400, seed)
        num_edits = original.count(7) if "renamed" in name else 1
        steps, _ = steps_of(original, edit(original))
        assert steps <= 400 / (MOST_DRAFTED + 1) + num_new + 10 + 4 * num_edits, (name, seed)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=60),
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_every_text_ends(prediction: list[int], output: list[int], most: int) -> None:
    """Drafts are parts of the prediction, never longer than asked."""
    cursor = PredictionCursor(Prediction(prediction))
    for end in range(1, len(output) + 1):
        draft = cursor.draft(most)
        assert len(draft) <= min(most, MOST_DRAFTED)
        assert not draft or any(
            prediction[i : i + len(draft)] == draft for i in range(len(prediction) - len(draft) + 1)
        )
        cursor.advance(output[:end], 1)
    assert steps_of(prediction, output)[0] <= len(output)


def test_a_match_that_is_far_away_must_be_longer() -> None:
    prediction = Prediction(range(100))
    assert prediction.after([200, 50], 50, 1) == 51
    assert [prediction.after([200, *range(first, 51)], 0, 1) for first in (50, 49, 48)] == [None, None, 51]
    assert [prediction.after([200, *range(first, 51)], 0, 2) for first in (49, 48, 47)] == [None, None, 51]


def test_words_in_place_of_others_leave_the_rest_near() -> None:
    cursor, output = PredictionCursor(Prediction(range(100))), [200 + i for i in range(40)]
    cursor.advance(output, 40)
    assert cursor.draft(4) == []
    cursor.advance([*output, 45], 1)  # one token is enough there
    assert cursor.draft(4) == [46, 47, 48, 49]


def test_a_useless_prediction_costs_a_few_drafts() -> None:
    for seed in range(8):
        _, wasted = steps_of(text(400, seed), text(400, seed + 100))
        assert wasted <= 60


def test_the_work_for_a_token_does_not_grow_with_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    match_length = Prediction._match_length

    def counted(self: Prediction, output, place: int) -> int:
        nonlocal calls
        calls += 1
        return match_length(self, output, place)

    monkeypatch.setattr(Prediction, "_match_length", counted)
    cursor = PredictionCursor(Prediction([1, 2] * 20_000))
    output = [1, 3] * 100
    for end in range(1, len(output) + 1):
        cursor.advance(output[:end], 1)
    assert 0 < calls <= 32 * len(output)


CONFIGS = {
    "plain": None,
    "proposer": scripted(k=3, wrong=0.3),
    "trees": scripted(k=5, shape="tree", wrong=0.3),
    "hidden states": scripted("Recorder", k=3, shape="mixed", wrong=0.3),
    "adaptive": scripted(k=3, wrong=0.3) | {"adaptive": True},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "keys", [{}, {"kv_cache_memory_bytes": 60_000, "max_num_batched_tokens": 24}], ids=["", "tight"]
)
def test_the_output_is_the_same(subject, name: str, keys: dict) -> None:
    config = CONFIGS[name]
    if config is not None:
        config = config | {"texts": subject.texts}
    llm = make_llm(subject.model, config, **keys)
    wrong = [[*e[:5], 3, 4, *e[9:]] for e in subject.expected]
    for predictions in (subject.expected, wrong, [[5] * 40] * 6, [*subject.expected[:3], *[None] * 3]):
        params = [greedy(32, prediction=prediction) for prediction in predictions]
        outputs = llm.generate(subject.prompts, params)
        assert [o.outputs[0].token_ids for o in outputs] == subject.expected
        for output, prediction in zip(outputs, predictions, strict=True):
            metrics = output.metrics
            if prediction in subject.expected and not keys:
                assert metrics.num_accepted_prediction_tokens >= 16
                assert metrics.num_rejected_prediction_tokens <= 8
            if prediction is None:
                assert metrics.num_accepted_prediction_tokens == metrics.num_rejected_prediction_tokens == 0
    assert not engine_of(llm).has_work


def test_samples_of_one_request_follow_it_apart(subject) -> None:
    llm = make_llm(subject.model)
    keys = {"n": 3, "temperature": 0.9, "seed": 7, "max_tokens": 24, "ignore_eos": True}
    plain = llm.generate([subject.prompts[0]], SamplingParams(**keys))[0]
    middle = plain.outputs[1].token_ids
    output = llm.generate([subject.prompts[0]], SamplingParams(**keys, prediction=middle))[0]
    assert [s.token_ids for s in output.outputs] == [s.token_ids for s in plain.outputs]
    assert output.metrics.num_accepted_prediction_tokens >= 16


def test_a_request_may_lower_the_draft_or_turn_it_off(subject) -> None:
    llm = make_llm(subject.model)
    for speculative, most in ((False, 0), ({"num_speculative_tokens": 2}, 2)):
        params = greedy(32, prediction=subject.expected[0], speculative=speculative, return_draft_steps=True)
        sample = llm.generate([subject.prompts[0]], params)[0].outputs[0]
        assert sample.token_ids == subject.expected[0]
        assert max(len(step.token_ids) for step in sample.draft_steps) == most
        assert {step.proposer for step in sample.draft_steps if step.token_ids} == (
            {"prediction"} if most else set()
        )


@pytest.mark.parametrize(
    ("keys", "max_tokens", "drafted"),
    [({}, 4, [2]), ({}, 3, [1]), ({}, 2, []), ({"max_num_batched_tokens": 6}, 12, [2, 4, 3])],
)
def test_a_draft_ends_where_the_text_or_the_pass_does(
    subject, keys: dict[str, int], max_tokens: int, drafted: list[int]
) -> None:
    llm = make_llm(subject.model, **keys)
    params = greedy(max_tokens, prediction=subject.expected[0], return_draft_steps=True)
    (sample,) = llm.generate([subject.prompts[0]], params)[0].outputs
    assert sample.token_ids == subject.expected[0][:max_tokens]
    assert [len(step.token_ids) for step in sample.draft_steps if step.token_ids] == drafted


@pytest.mark.parametrize(
    ("sampler", "drawn"),
    [
        ("block", None),
        ("probabilistic", {}),
        ("probabilistic", {"draws_all": True}),
        pytest.param("block", {}, marks=pytest.mark.full),
    ],
)
@pytest.mark.sampled(1, slow=1)
def test_sampled_texts_follow_the_exact_probabilities(sampler: str, drawn: dict[str, bool] | None) -> None:
    """Half of the requests predict the likeliest text; the others have drafts without q, or with it."""
    size, prompt, count = 5, [1, 4, 0, 2], 2000
    model = few_ids(size, flatness=0.25)
    short = SamplingParams(temperature=0.9, top_k=4, max_tokens=3, ignore_eos=True)
    law = text_probs(model, prompt, short, Constraints(), lambda text: False)
    likely = max(law, key=law.__getitem__)
    config = {
        "method": "speccheck.proposers.Scripted",
        "num_speculative_tokens": 2,
        "texts": [[*prompt, *likely]],
    }
    if drawn is not None:
        config = {"method": f"{__file__.replace('test_prediction', 'test_sampled_laws')}:Drawn"}
        config |= {"num_speculative_tokens": 3} | drawn
    params = [
        short.model_copy(
            update={"max_tokens": 4, "seed": 1_000_003 * i, "prediction": [*likely, 0] if i % 2 else None}
        )
        for i in range(count)
    ]
    llm = make_llm(model, config | {"rejection_sample_method": sampler}, max_model_len=16, max_num_seqs=64)
    texts = tokens_of(llm, [prompt] * count, params)
    for first in (0, 1):
        assert excess_of_texts(Counter(tuple(text[:3]) for text in texts[first::2]), law) < 1


def test_text_is_tokenized_and_bad_predictions_are_refused(subject) -> None:
    llm = make_llm(subject.model)
    with pytest.raises(ConfigError, match="prediction of text needs a tokenizer"):
        llm.generate([subject.prompts[0]], greedy(4, prediction="words"))
    with pytest.raises(ConfigError, match="prediction has id 128, outside the vocabulary of 128"):
        llm.generate([subject.prompts[0]], greedy(4, prediction=[1, 128]))
    with pytest.raises(ConfigError, match="prediction"):
        greedy(4, prediction=7)
    assert tokens_of(llm, [subject.prompts[0]], greedy(32, prediction=[])) == [subject.expected[0]]


def test_a_text_longer_than_any_output_is_cut_before_it_is_tokenized(subject) -> None:
    llm = make_llm(subject.model, tokenizer=letter_tokenizer())
    said = llm.generate([subject.prompts[0]], greedy(32))[0].outputs[0].text
    begun = process_time()
    output = llm.generate([subject.prompts[0]], greedy(32, prediction=said + "ab" * 1_000_000))[0]
    assert process_time() - begun < 5
    assert output.outputs[0].text == said
    assert output.metrics.num_accepted_prediction_tokens >= 16
