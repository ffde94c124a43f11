"""Ways to name a proposer."""

from __future__ import annotations

from pathlib import Path

import pytest
import speccheck.proposers
from speccheck.engines import engine_of, greedy, make_llm, tokens_of

from specdec import PluginError


def test_a_class_in_a_local_file(subject) -> None:
    file = Path(speccheck.proposers.__file__)
    for keys in (
        {"method": f"{file}:Scripted"},
        {"method": "custom_class", "model": "speccheck.proposers.Scripted"},
    ):
        llm = make_llm(subject.model, keys | {"num_speculative_tokens": 4, "texts": subject.texts})
        assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
        assert engine_of(llm).metrics.num_accepted_tokens > 50
    with pytest.raises(PluginError, match="no class 'Absent'"):
        make_llm(subject.model, {"method": f"{file}:Absent", "num_speculative_tokens": 4})
