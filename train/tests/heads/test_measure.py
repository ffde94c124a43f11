"""What is tried with a new head."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.config import target_facts
from specdec_cli.bench import contenders_of
from specdec_train.heads.measure import configs_of
from specdec_zoo import path


@pytest.mark.parametrize(("method", "artefact"), [("eagle3", "eagle3"), ("mtp", "mtp"), ("draft", "draft")])
def test_drafts_of_each_length_are_tried_and_longer_ones_that_end_where_the_head_is_unsure(method, artefact):
    configs = configs_of(method, Path(path(artefact)), 3)
    asked = [(config["num_speculative_tokens"], "draft_confidence_threshold" in config) for config in configs]
    assert asked == [(2, False), (3, False), (5, False), (3, True), (5, True)]
    # All of them are configurations of the method, as a user would give them.
    assert len(contenders_of(configs, target_facts(path("target")))) == 1 + len(configs)


def test_an_mlp_drafts_as_many_tokens_as_it_has_heads(tmp_path):
    configs = configs_of("mlp", tmp_path, 3)
    assert [config["num_speculative_tokens"] for config in configs] == [3, 3]
    assert [config.get("draft_confidence_threshold", 0) > 0 for config in configs] == [False, True]
