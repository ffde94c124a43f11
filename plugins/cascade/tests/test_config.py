"""Configurations of members, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import parse_speculative_config

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


def parse(**keys: Any) -> Any:
    return parse_speculative_config({"method": "cascade", **keys})


def test_tokens_of_a_step_are_the_highest_of_the_members() -> None:
    found = parse(proposers=[NGRAM, {**NGRAM, "num_speculative_tokens": 7}])
    assert found.config.num_speculative_tokens == found.proposer_config.num_speculative_tokens == 7
    assert [m.config.num_speculative_tokens for m in found.proposer_config.proposers] == [4, 7]
    assert parse(proposers=[NGRAM, NGRAM], num_speculative_tokens=2).config.num_speculative_tokens == 2


def test_members_draft_without_q() -> None:
    head = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}
    for sampler, expected in (("strict", "coupled"), ("probabilistic", "greedy")):
        found = parse(proposers=[NGRAM, head], rejection_sample_method=sampler)
        assert found.proposer_config.proposers[1].config.draft_sample_method == expected


def test_members_take_what_the_whole_says_unless_they_say_otherwise() -> None:
    head = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}
    found = parse(
        proposers=[{**NGRAM, "max_model_len": 90}, head], draft_sample_method="greedy", max_model_len=100
    ).proposer_config.proposers
    assert [member.config.draft_sample_method for member in found] == ["greedy", "greedy"]
    assert [member.config.max_model_len for member in found] == [90, 100]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "'proposers' needs a list"),
        ({"proposers": "ngram"}, "'proposers' needs a list"),
        ({"proposers": [NGRAM]}, "proposers"),
        ({"proposers": [NGRAM, {"method": "ngram"}]}, r"proposers\[1\]: .*num_speculative_tokens"),
        (
            {"proposers": [NGRAM, {**NGRAM, "adaptive": True}]},
            r"proposers\[1\]: 'adaptive' belongs to the cascade as a whole",
        ),
        (
            {"proposers": [NGRAM, {"method": "ngram_gpu", "num_speculative_tokens": 2}]},
            r"proposers\[1\]: 'ngram_gpu' drafts on the device",
        ),
        (
            {"proposers": [NGRAM, NGRAM], "revision": "main"},
            "'revision' is that of 'model', which is not given",
        ),
        ({"proposers": [NGRAM, {**NGRAM, "prompt_lookup_mim": 2}]}, "prompt_lookup_min"),
    ],
)
def test_wrong_configurations_name_the_place(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(**keys)
