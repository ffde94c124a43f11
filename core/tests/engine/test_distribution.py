"""The distribution of what is sampled, through the whole engine, against exact enumeration of the target's.

A model of few ids; all sequences of three tokens are enumerated. A chi-square statistic must stay under
`df + 10 * sqrt(2 * df)` (ten standard deviations; seeds are fixed, so the result is the same in every run).
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from speccheck.engines import engine_of, make_llm, scripted
from speccheck.models import few_ids
from speccheck.naive import Constraints, TextProbs, text_probs
from speccheck.texts import excess_of_texts

from specdec import SamplingParams

VOCAB = 5
LENGTH = 3
PROMPT = [1, 4, 0, 2]
SAMPLES = 2500


@pytest.fixture(scope="module")
def model():
    return few_ids(VOCAB, flatness=0.25)


def exact(model, params: SamplingParams) -> TextProbs:
    return text_probs(
        model, PROMPT, params.model_copy(update={"max_tokens": LENGTH}), Constraints(), lambda text: False
    )


def favourites(model) -> list[list[int]]:
    """Texts a proposer believes in: they make acceptance depend on the text."""
    law = exact(model, SamplingParams(temperature=1.0))
    best = sorted(law, key=law.__getitem__, reverse=True)
    return [[*PROMPT, *text] for text in best[:2]]


PROPOSERS = {
    "none": None,
    "repeats": scripted(k=2),
    "wrong": scripted(k=2, wrong=1.0),
    "tree": scripted(k=6, shape="tree", wrong=0.2),
    "errs": scripted("Recorder", k=3, shape="mixed", fails_every=3, malformed_every=4),
}
LAWS = {
    "plain": {"temperature": 1.0},
    "cuts": {"temperature": 0.7, "top_k": 4, "top_p": 0.93},
}


@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.sampled(3, slow=3)
def test_sampled_texts_follow_the_exact_law(model, name, law) -> None:
    config = PROPOSERS[name]
    if config is not None:
        config = config | {"texts": favourites(model)}
    params = [
        SamplingParams(max_tokens=LENGTH, seed=1_000_003 * i, ignore_eos=True, **LAWS[law])
        for i in range(SAMPLES)
    ]
    llm = make_llm(model, config, max_model_len=16, max_num_seqs=64)
    counts = Counter(tuple(o.outputs[0].token_ids) for o in llm.generate([PROMPT] * SAMPLES, params))
    assert excess_of_texts(counts, exact(model, params[0])) < 1
    if config is not None:
        assert engine_of(llm).metrics.num_accepted_tokens > 0


def test_samples_of_one_request_follow_the_law_too(model) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH, seed=12, n=1500, ignore_eos=True)
    llm = make_llm(
        model, scripted(k=4, shape="tree", texts=favourites(model)), max_model_len=16, max_num_seqs=64
    )
    [output] = llm.generate([PROMPT], params)
    counts = Counter(tuple(c.token_ids) for c in output.outputs)
    assert excess_of_texts(counts, exact(model, params)) < 1


def test_the_threshold_catches_a_wrong_law(model) -> None:
    """A sampler that took the second token from a distribution one step stale would not pass."""
    law = exact(model, SamplingParams(temperature=1.0))
    first = {t: sum(p for text, p in law.items() if text[0] == t) for t in range(VOCAB)}
    stale = {
        text: first[text[0]] * first[text[1]] * first[text[2]]
        for text in itertools.product(range(VOCAB), repeat=LENGTH)
    }
    counts = Counter({text: round(p * SAMPLES) for text, p in stale.items()})
    assert excess_of_texts(counts, law) > 1
