"""What an observer raises costs nobody anything."""

from __future__ import annotations

import logging

from speccheck.engines import engine_of, greedy, make_llm, tokens_of


def test_an_observer_that_raises_is_counted_and_logged_once(site, subject, caplog) -> None:
    source = """
from specdec import hookimpl

@hookimpl
def specdec_step_finished(stats):
    raise KeyError("a step")

@hookimpl
def specdec_request_finished(stats):
    raise KeyError("a request")
"""
    site.install("moody", {"observers": {"moody": "moody"}}, {"moody": source})
    llm = make_llm(subject.model)
    with caplog.at_level(logging.WARNING, "specdec"):
        assert tokens_of(llm, subject.prompts[:1], greedy(5)) == [subject.expected[0][:5]]
    assert engine_of(llm).metrics.observer_errors == 5 + 1
    assert len([record for record in caplog.records if "observer" in record.getMessage()]) == 1
