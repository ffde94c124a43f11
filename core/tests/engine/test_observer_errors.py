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


def test_observers_behind_one_that_raises_are_told(site, subject) -> None:
    told = "told = []"
    source = """
from specdec import hookimpl
{told}

@hookimpl
def specdec_step_finished(stats):
    {step}

@hookimpl
def specdec_request_finished():
    told.append("a request")
"""
    for name in ("first", "last"):  # pluggy calls the last one first
        kind = source.format(told=told, step="told.append(stats.num_emitted_tokens)")
        site.install(name, {"observers": {name: f"{name}_module"}}, {f"{name}_module": kind})
    moody = source.format(told=told, step="raise SystemExit(1)")
    site.install("moody", {"observers": {"moody": "moody_module"}}, {"moody_module": moody})
    llm = make_llm(subject.model)
    assert tokens_of(llm, subject.prompts[:1], greedy(3)) == [subject.expected[0][:3]]
    import first_module
    import last_module
    import moody_module

    assert first_module.told == last_module.told == [1, 1, "a request", 1]
    assert moody_module.told == ["a request"]
    assert engine_of(llm).metrics.observer_errors == 3
