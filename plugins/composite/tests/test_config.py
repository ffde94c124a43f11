"""Configurations of members, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import parse_speculative_config, target_facts, zoo_path

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
HEAD = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}


def parse(**keys: Any) -> Any:
    return parse_speculative_config({"method": "composite", **keys})


def test_tokens_of_a_step_are_the_highest_of_the_members() -> None:
    found = parse(proposers=[NGRAM, {**NGRAM, "num_speculative_tokens": 7}])
    assert found.config.num_speculative_tokens == found.proposer_config.num_speculative_tokens == 7
    assert [m.config.num_speculative_tokens for m in found.proposer_config.proposers] == [4, 7]
    assert parse(proposers=[NGRAM, NGRAM], num_speculative_tokens=2).config.num_speculative_tokens == 2


def sampling_of_members(**keys: Any) -> list[str]:
    return [member.config.draft_sample_method for member in parse(**keys).proposer_config.proposers]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("choose", ["probabilistic", "greedy", "probabilistic"]),
        ("cascade", ["greedy", "greedy", "probabilistic"]),
        ("longest", ["greedy"] * 3),
        ("merge", ["greedy"] * 3),
        ("extend", ["greedy"] * 3),
    ],
)
def test_members_draft_with_q_only_where_the_policy_takes_it_unseen(policy: str, expected: list[str]) -> None:
    keys = {"proposers": [HEAD, NGRAM, HEAD], "policy": policy}
    assert sampling_of_members(**keys, rejection_sample_method="probabilistic") == expected
    assert sampling_of_members(**keys) == ["coupled", "greedy", "coupled"]


def test_draft_sampling_of_the_whole_is_for_members_that_draw() -> None:
    keys = {"proposers": [NGRAM, HEAD], "draft_sample_method": "coupled"}
    assert sampling_of_members(**keys) == ["greedy", "coupled"]
    with pytest.raises(
        ConfigError, match=r"proposers\[0\]: .*'coupled' needs a method that draws its tokens"
    ):
        parse(proposers=[{**NGRAM, "draft_sample_method": "coupled"}, HEAD])


def test_choose_needs_no_adaptive_beside_it() -> None:
    assert not parse(proposers=[NGRAM, HEAD]).config.adaptive
    assert parse(proposers=[NGRAM, HEAD], adaptive=True).config.adaptive


def test_members_take_what_the_whole_says_unless_they_say_otherwise() -> None:
    found = parse(
        proposers=[{**NGRAM, "max_model_len": 90}, HEAD], draft_sample_method="greedy", max_model_len=100
    ).proposer_config.proposers
    assert [member.config.draft_sample_method for member in found] == ["greedy", "greedy"]
    assert [member.config.max_model_len for member in found] == [90, 100]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "'proposers' needs a list"),
        ({"proposers": "ngram"}, "'proposers' needs a list"),
        (
            {"proposers": [NGRAM]},
            "'proposers' has one entry: add another, or take its method without 'composite'",
        ),
        (
            {"proposers": [NGRAM, {"method": "speccheck.proposers.Scripted"}]},
            r"proposers\[1\]: .*num_speculative_tokens",
        ),
        (
            {"proposers": [NGRAM, {**NGRAM, "adaptive": True}]},
            r"proposers\[1\]: 'adaptive' belongs to the composite as a whole",
        ),
        (
            {"proposers": [NGRAM, NGRAM], "revision": "main"},
            "'revision' is that of 'model', which is not given",
        ),
        ({"proposers": [NGRAM, {**NGRAM, "prompt_lookup_mim": 2}]}, "prompt_lookup_min"),
        (
            {"proposers": [NGRAM, NGRAM], "policy": "longst"},
            "'policy' 'longst' is not installed: did you mean 'longest'",
        ),
        (
            {"proposers": [NGRAM, NGRAM], "min_promise": 1.0},
            "min_promise does nothing with policy 'choose': leave it out, or take 'cascade'",
        ),
    ],
)
def test_wrong_configurations_name_the_place(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(**keys)


def test_members_and_the_policy_may_be_given_as_paths(tmp_path: Path) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from specdec_plugin_composite.policies.longest import Longest\n\nclass Mine(Longest):\n    pass\n"
    )
    heads = [
        {"method": method, "model": Path(zoo_path(artefact)), "num_speculative_tokens": 2}
        for method, artefact in (
            ("eagle", "eagle"),
            ("eagle3", "eagle3"),
            ("mtp", "mtp"),
            ("draft_model", "draft"),
        )
    ]
    keys = {"method": "composite", "proposers": heads, "policy": tmp_path / "mine.py:Mine"}
    resolved = parse_speculative_config(keys, target=target_facts(zoo_path("target")))
    assert resolved is not None
    assert [member.config.model for member in resolved.proposer_config.proposers] == [
        str(head["model"]) for head in heads
    ]
