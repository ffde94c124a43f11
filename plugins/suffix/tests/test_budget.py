"""A step does not take much longer than its budget."""

import logging

import pytest

from specdec_plugin_suffix import budget
from specdec_plugin_suffix.budget import TimeBudget
from specdec_plugin_suffix.memory import PIECE


class Clock:
    """A processor and a wall clock that tests set."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def work(self, seconds: float) -> None:
        self.wall += seconds
        self.processor += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(budget, "perf_counter", lambda: made.wall)
    monkeypatch.setattr(budget, "thread_time", lambda: made.processor)
    return made


@pytest.fixture
def slow_feed(clock, make_feed, monkeypatch):
    """A feed whose trees take 4 ms to look up and 1 ms to enter tokens, with 10 ms for a step."""

    def make(**keys):
        feed = make_feed(suffix_decoding_time_budget_ms=10.0, **keys)
        cache = feed.proposer._trees._cache
        for name, seconds in (("speculate", 0.004), ("append", 0.001)):
            monkeypatch.setattr(cache, name, _slowed(getattr(cache, name), clock, seconds))
        return feed

    return make


def _slowed(function, clock, seconds):
    def slow(*arguments):
        clock.work(seconds)
        return function(*arguments)

    return slow


def test_waiting_for_the_processor_does_not_count(clock) -> None:
    timer = TimeBudget(0.01)
    timer.begin()
    clock.work(0.006)
    clock.wall += 5.0
    assert not timer.is_over()
    clock.work(0.003)
    assert not timer.is_over()
    clock.work(0.002)
    assert timer.is_over()
    timer.begin()
    assert not timer.is_over()


def test_rows_left_over_get_no_draft_and_catch_up(slow_feed, delivery, caplog) -> None:
    feed = slow_feed()
    names = list("abcd")
    with caplog.at_level(logging.WARNING, "specdec"):
        feed.step({name: delivery(0, [1, 2, 3, 4], 0) for name in names})
        drafts = feed.step({name: delivery(4, [1, 2]) for name in names})
        # 1 ms and 4 ms for each of two rows; then time is up
        assert drafts == {"a": [3, 4], "b": [3, 4], "c": [], "d": []}
        drafts = feed.step({name: delivery(6, [3]) for name in reversed(names)})
    assert drafts == {"d": [], "c": [4, 1, 2], "b": [4, 1, 2], "a": []}
    counters = feed.proposer.counters
    assert counters.num_steps_over_budget == 2
    assert counters.num_rows_without_time == 4
    (record,) = caplog.records
    assert "suffix_decoding_time_budget_ms=10.0" in record.message


def test_nothing_is_lost_by_waiting(slow_feed, delivery) -> None:
    feed = slow_feed()
    text = [token % 700 for token in range(20 * PIECE)]
    assert feed.append("a", *text) == []
    steps = 1
    while feed.proposer._trees._requests["a"].waiting:
        feed.append("a")
        steps += 1
    assert steps == 2  # ten pieces each
    assert feed.append("a") == text[len(text) % 700 :][:8]


def test_a_long_prompt_does_not_keep_others_from_drafting(slow_feed, delivery) -> None:
    feed = slow_feed()
    feed.append("b", 1, 2, 3, 4)
    drafts = feed.step({"long": delivery(0, list(range(5)) * 2000), "b": delivery(4, [1, 2])})
    assert drafts == {"long": [], "b": [3, 4]}
