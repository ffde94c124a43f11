"""`LLM` says once, with the reason, that nothing was drafted in a whole run."""

from __future__ import annotations

import pytest
from speccheck.engines import greedy, make_llm, scripted

from specdec import SamplingParams

NOTHING = "drafted nothing in any step: the method found nothing to guess"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "drafted nothing" in record.getMessage()]


def test_a_run_without_drafts_is_told_once(subject, caplog) -> None:
    llm = make_llm(subject.model, scripted("Scripted", 3, finds=0.0))
    for _ in range(2):
        llm.generate(subject.prompts, greedy(8), use_tqdm=False)
    [line] = said(caplog)
    assert line.startswith("speccheck.proposers.Scripted " + NOTHING)


def test_a_proposer_that_fails_is_told_with_its_failures(subject, caplog) -> None:
    config = scripted("Scripted", 3, texts=[], fails_every=1, on_proposer_error="fallback")
    llm = make_llm(subject.model, config)
    llm.generate(subject.prompts, greedy(8))
    [line] = said(caplog)
    assert "its proposer failed " in line


@pytest.mark.parametrize(
    "params",
    [greedy(1), greedy(2), SamplingParams(temperature=0, max_tokens=8, speculative=False)],
    ids=["one token", "two tokens", "not wanted"],
)
def test_nothing_is_told_where_nothing_could_be_drafted(subject, caplog, params: SamplingParams) -> None:
    llm = make_llm(subject.model, scripted("Scripted", 3, finds=0.0))
    llm.generate(subject.prompts, params)
    assert said(caplog) == []
    llm.generate(subject.prompts, greedy(8))
    assert len(said(caplog)) == 1


def test_drafts_and_plain_decoding_are_no_reason(subject, caplog) -> None:
    make_llm(subject.model).generate(subject.prompts, greedy(8))
    llm = make_llm(subject.model, scripted("Scripted", 3, texts=subject.texts))
    llm.generate(subject.prompts, greedy(8))
    llm.generate([[1, 2, 3]], greedy(8))  # what no text begins with
    assert said(caplog) == []
