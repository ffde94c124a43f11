"""Configurations, checked before anything is loaded, and their names."""

from __future__ import annotations

import json

import pytest

from specdec.config import TargetFacts
from specdec.errors import ConfigError, PluginError
from specdec_cli.bench import BASELINE, contenders_of

SCRIPTED = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 3}
FACTS = TargetFacts(model=None, vocab_size=300, max_model_len=160)


def test_names_are_unique_and_configurations_kept_as_given() -> None:
    longer = {**SCRIPTED, "num_speculative_tokens": 7}
    found = contenders_of([json.dumps(SCRIPTED), longer, SCRIPTED], FACTS)
    assert found[0] is BASELINE
    name = SCRIPTED["method"]
    assert [c.name for c in found[1:]] == [f"{name} k=3", f"{name} k=7", f"{name} k=3 #2"]
    assert [c.config for c in found[1:]] == [SCRIPTED, longer, SCRIPTED]
    assert [c.method for c in found[1:]] == [name] * 3


def test_names_say_what_is_adaptive() -> None:
    found = contenders_of([SCRIPTED, {**SCRIPTED, "adaptive": True}], FACTS)
    assert [c.name.removeprefix(SCRIPTED["method"]) for c in found[1:]] == [" k=3", " k=3 adaptive"]


def test_equal_names_tell_what_differs() -> None:
    other = {**SCRIPTED, "max_model_len": 100}
    found = contenders_of([SCRIPTED, other, other], FACTS)
    assert [c.name.removeprefix(SCRIPTED["method"]) for c in found[1:]] == [
        " k=3", " k=3 max_model_len=100", " k=3 max_model_len=100 #2",
    ]  # fmt: skip


def test_mistakes_are_found_at_once() -> None:
    with pytest.raises(ConfigError, match="num_speculative_token"):
        contenders_of([{**SCRIPTED, "num_speculative_token": 3}], FACTS)
    with pytest.raises(PluginError, match="no method 'nobody'"):
        contenders_of([{"method": "nobody", "num_speculative_tokens": 3}], FACTS)
