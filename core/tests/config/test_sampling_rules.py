"""Samplers and the drafts that suit them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specdec import ConfigError, PluginError
from specdec.config import ResolvedSpeculation, parse_speculative_config

pytestmark = pytest.mark.usefixtures("plugins")


@pytest.fixture
def draft(checkpoint: Any) -> dict[str, Any]:
    """A method that can draw its drafts."""
    model = checkpoint("draft", {"model_type": "llama"})
    return {"method": "draft_model", "model": model, "num_speculative_tokens": 3}


NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def resolve(keys: dict[str, Any]) -> ResolvedSpeculation:
    resolved = parse_speculative_config(keys)
    assert resolved is not None
    return resolved


def error_of(keys: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_speculative_config(keys)
    return str(caught.value)


def test_each_sampler_gets_the_drafts_it_accepts_most_unless_told_otherwise(draft: dict[str, Any]) -> None:
    assert resolve(draft).proposer_config.draft_sample_method == "coupled"
    assert resolve({**draft, "draft_sample_method": "greedy"}).config.draft_sample_method == "greedy"
    assert resolve(NGRAM).config.draft_sample_method == "greedy"
    threshold = {**draft, "rejection_sample_method": "threshold"}
    assert resolve(threshold).config.draft_sample_method == "greedy"
    uses_q = {**draft, "rejection_sample_method": "uses_q"}
    assert resolve(uses_q).proposer_config.draft_sample_method == "probabilistic"
    assert resolve({**uses_q, "draft_sample_method": "greedy"}).config.draft_sample_method == "greedy"
    assert resolve({**NGRAM, "rejection_sample_method": "uses_q"}).config.draft_sample_method == "greedy"


def test_coupled_drafts_suit_only_samplers_that_ignore_q(draft: dict[str, Any]) -> None:
    coupled = {**draft, "draft_sample_method": "coupled"}
    assert resolve(coupled).proposer_config.draft_sample_method == "coupled"
    assert error_of({**coupled, "rejection_sample_method": "uses_q"}) == (
        "speculative_config: 'draft_sample_method': 'coupled' does not go with 'rejection_sample_method': 'uses_q', "
        "which needs drafts drawn with noise of their own: use 'probabilistic', or "
        "'rejection_sample_method': 'strict'"
    )


def test_drawn_drafts_that_nobody_uses_get_a_warning(
    draft: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        resolve({**draft, "draft_sample_method": "probabilistic"})
        resolve({**draft, "draft_sample_method": "probabilistic"})
    (record,) = caplog.records
    assert "'probabilistic' lowers acceptance with 'rejection_sample_method': 'strict'" in record.getMessage()


def test_a_lossy_sampler_is_called_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        resolve(NGRAM)
        resolve({**NGRAM, "rejection_sample_method": "uses_q"})
        assert caplog.records == []
        resolve({**NGRAM, "rejection_sample_method": "threshold"})
        resolve({**NGRAM, "rejection_sample_method": "threshold"})
    (record,) = caplog.records
    assert record.getMessage() == (
        "speculative_config: 'rejection_sample_method': 'threshold' is lossy: what comes out does not follow the target's "
        "distribution"
    )


@pytest.mark.parametrize("way", ["coupled", "probabilistic"])
def test_a_method_that_draws_nothing_cannot_be_told_how(way: str) -> None:
    assert error_of({**NGRAM, "draft_sample_method": way}) == (
        f"speculative_config: 'draft_sample_method': {way!r} needs a method that draws its tokens; 'ngram' does not: "
        "leave the key out"
    )


def test_a_sampler_gets_the_common_keys_that_it_declares() -> None:
    resolved = resolve({**NGRAM, "rejection_sample_method": "by_rate", "rates": [0.9, 0.5, 0.2]})
    assert resolved.sampler_config.model_dump() == {"num_speculative_tokens": 3, "rates": (0.9, 0.5, 0.2)}
    assert (
        error_of({**NGRAM, "rejection_sample_method": "by_rate"}) == "speculative_config: 'rates' is missing"
    )


def test_a_sampler_has_keys_of_its_own() -> None:
    resolved = resolve({**NGRAM, "rejection_sample_method": "threshold", "posterior_threshold": 0.2})
    assert resolved.sampler_config.model_dump() == {"posterior_threshold": 0.2}
    told = error_of({**NGRAM, "rates": [0.2]})
    assert (
        told
        == "speculative_config: 'rates' is a key of 'rejection_sample_method': 'by_rate', not of 'strict'"
    )
    assert resolve({**NGRAM, "rates": None}) == resolve(NGRAM)


def test_a_sampler_that_is_not_there() -> None:
    with pytest.raises(PluginError, match=r"there is no sampler 'fly'\. Installed samplers: .*strict"):
        parse_speculative_config({**NGRAM, "rejection_sample_method": "fly"})
