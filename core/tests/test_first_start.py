"""The first start of a process: imports without collections, and lines while a model is loaded."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from specdec import LLM
from specdec.frontend import construction, importing, loading_lines


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """As in a user's process; the root conftest freezes what there is before the first test."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_nothing_is_collected_while_modules_are_imported() -> None:
    before = [each["collections"] for each in gc.get_stats()]
    with importing():
        made = [[number] for number in range(10 * gc.get_threshold()[0])]
        during = [each["collections"] for each in gc.get_stats()]
        assert not gc.isenabled()
    assert during == before
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    oldest = {id(each) for each in gc.get_objects(generation=2)}
    assert {id(each) for each in made} <= oldest


def test_garbage_made_meanwhile_is_collected_later() -> None:
    class Held:
        is_gone = False

        def __del__(self) -> None:
            Held.is_gone = True

    with importing():
        circle: list[object] = [Held()]
        circle.append(circle)
        del circle
    assert not Held.is_gone
    gc.collect()
    assert Held.is_gone


def test_what_the_caller_switched_off_or_froze_stays_so() -> None:
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.freeze()
    try:
        with importing():
            pass
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("model", ["zoo", Path("zoo"), 3])
def test_a_model_that_loads_for_long_is_told(
    model: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        sleep(0.3)
        raise RuntimeError("loaded")

    monkeypatch.setattr(loading_lines, "LINE_EVERY_S", 0.1)
    monkeypatch.setattr(construction, "_build", load)
    with caplog.at_level(logging.WARNING, "specdec.loading"), pytest.raises(RuntimeError, match="loaded"):
        LLM(model)
    said = list(caplog.messages)
    assert said
    assert set(said) == {f"still loading {'int' if model == 3 else 'zoo'}, after 0 s"}
    sleep(0.3)
    assert caplog.messages == said, "it ends with the loading"
