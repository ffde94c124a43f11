"""What is tried: methods that fit the target, with several k, and combinations of the best."""

from __future__ import annotations

import json

import pytest

from specdec import ConfigError, registry
from specdec.config import parse_speculative_config, target_facts, zoo_path
from specdec.registry import known_methods
from specdec_cli.tune.candidate import Candidate
from specdec_cli.tune.form import forms_of, place
from specdec_cli.tune.space import COMPOSITE, Space


@pytest.fixture(scope="module")
def space() -> Space:
    return Space(target_facts(zoo_path("target")), is_on_device=False)


@pytest.fixture(scope="module")
def singles(space: Space) -> list[Candidate]:
    return space.singles()


def by_method(candidates: list[Candidate]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for one in candidates:
        assert one.contender.method is not None
        found.setdefault(one.contender.method, []).append(one)
    return found


def test_every_method_that_fits_is_tried_with_several_k(singles: list[Candidate]) -> None:
    found = by_method(singles)
    expected = {
        name for name, method in known_methods().items() if method.zoo and method.draft in ("head", "target")
    }
    assert expected - {"mlp_speculator"} <= set(found)
    for method, members in found.items():
        depths = {one.num_speculative_tokens for one in members}
        assert depths == {k for form in forms_of(method) for k in form.depths}
    assert len({one.name for one in singles}) == len(singles)
    assert not {"auto", COMPOSITE} & set(found)


def test_forms_of_the_target_itself_are_tried(singles: list[Candidate]) -> None:
    (own,) = (
        members
        for members in by_method(singles).values()
        if any("weights" in one.contender.config for one in members)
    )
    forms = {(c["weights"], c.get("head_weights")) for c in (one.contender.config for one in own)}
    assert forms == {("int8", None), ("int4", "int8")}
    assert {one.kind for one in own} == {"model"}


def test_one_engine_serves_all_k_of_a_method_that_does_not_learn(singles: list[Candidate]) -> None:
    for method, members in by_method(singles).items():
        for form in forms_of(method):
            options = form.options.items()
            of_form = [one for one in members if options <= one.contender.config.items()]
            if form.learns:
                assert all(one.lower is None and one.engine is one.contender for one in of_form)
    (head,) = (m for name, m in by_method(singles).items() if name == "eagle3")
    shared = [one for one in head if "draft_confidence_threshold" not in one.contender.config]
    assert len({one.engine.name for one in shared}) == 1
    deepest = max(one.num_speculative_tokens for one in shared)
    assert shared[0].engine.config["num_speculative_tokens"] == deepest
    assert {one.lower for one in shared} == {2, 3, None}


def test_what_cannot_run_is_left_out_once_with_its_reason(space: Space, singles: list[Candidate]) -> None:
    reasons = {entry.method: entry.reason for entry in space.left_out}
    assert reasons["medusa"] == "method 'medusa' needs a draft checkpoint as 'model'"
    assert reasons["ngram_gpu"] == "drafts on a device, and the model runs on the CPU"
    assert len(space.left_out) == len(reasons)
    assert not set(reasons) & set(by_method(singles))


def test_your_own_configurations_are_tried_as_they_are(space: Space) -> None:
    (one,) = space.given(['{"method": "suffix", "num_speculative_tokens": 5, "adaptive": true}'])
    assert one.contender.config == {"method": "suffix", "num_speculative_tokens": 5, "adaptive": True}
    assert one.lower is None
    with pytest.raises(ConfigError, match="unknown key 'topk'"):
        space.given([{"method": "suffix", "topk": 3}])
    with pytest.raises(ConfigError, match="rejection_sample_method 'typical' changes the text"):
        space.given([{"method": "suffix", "rejection_sample_method": "typical"}])


def test_combinations_are_of_the_best_that_copies_and_the_best_with_a_model(
    space: Space, singles: list[Candidate]
) -> None:
    found = by_method(singles)
    ranked = [found["eagle3"][1], found["suffix"][0], found["eagle3"][0], found["ngram"][0]]
    combined = space.combined(ranked)
    several = {one.contender.config["policy"]: one for one in combined if one.contender.method == COMPOSITE}
    assert set(several) == {*registry.entries_of("specdec.policies", "specdec-plugin-composite")}
    members = [found["suffix"][0].contender.config, found["eagle3"][1].contender.config]
    assert several["choose"].contender.config["proposers"] == members
    assert several["extend"].contender.config["proposers"] == members[::-1]
    assert several["cascade"].name == "cascade of suffix k=8 and eagle3 k=3"
    assert {one.contender.method for one in combined} >= {"auto", "eagle3", COMPOSITE}
    assert combined[0].contender.config == {**ranked[0].contender.config, "adaptive": True}
    assert all(one.engine is one.contender for one in combined)
    facts = target_facts(zoo_path("target"))
    for one in combined:  # what is written to a file is read again
        assert parse_speculative_config(json.dumps(one.contender.config), target=facts) is not None


def test_without_a_method_that_copies_there_is_no_composite(space: Space, singles: list[Candidate]) -> None:
    combined = space.combined(by_method(singles)["eagle3"])
    assert COMPOSITE not in {one.contender.method for one in combined}


def test_methods_that_are_not_official_come_first() -> None:
    assert sorted(["self", "mine", "suffix"], key=place)[0] == "mine"
    assert [k for form in forms_of("mine") for k in form.depths] == [3, 6]
