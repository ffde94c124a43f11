"""The scorer is a plugin that `LLM(scorer=...)` names."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccheck.engines import make_llm, tokens_of
from speccheck.identity import references
from speccheck.models import prompts, tiny

from specdec import ConfigError, PluginError, SamplingParams

COUNTING = """
from specdec_runtime.scorers.transformers import TransformersScorer


class Counting(TransformersScorer):
    name = "counting"
    num_passes = 0

    def score(self, batch):
        self.num_passes += 1
        return super().score(batch)
"""


def test_a_scorer_from_a_file_runs_the_target(tmp_path: Path) -> None:
    file = tmp_path / "counting.py"
    file.write_text(COUNTING)
    model, texts = tiny("llama"), prompts([9, 4], seed=3)
    config = {"method": "ngram", "num_speculative_tokens": 3}
    llm = make_llm(model, config, scorer=f"{file}:Counting")
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    assert tokens_of(llm, texts, params) == references(model, texts, 8)
    assert llm._built.scorer.num_passes > 2


def test_a_wrong_scorer_is_refused() -> None:
    with pytest.raises(PluginError, match="transformers"):
        make_llm(tiny("llama"), scorer="transformer")
    with pytest.raises(ConfigError, match="scorer=5 must be a plugin's name"):
        make_llm(tiny("llama"), scorer=5)
    with pytest.raises(ConfigError, match="scorer='other' runs in one process"):
        make_llm(tiny("llama"), scorer="other", tensor_parallel_size=2)
