"""Defaults, mirroring and messages of the configuration."""

import pytest
from pydantic import ValidationError

from specdec.config import parse_speculative_config
from specdec_plugin_ngram import NgramConfig


def make(**keys):
    return NgramConfig(num_speculative_tokens=3, **keys)


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu"])
def test_k_has_a_default(method):
    assert parse_speculative_config({"method": method}).config.num_speculative_tokens == 5


@pytest.mark.parametrize(
    ("keys", "lengths"),
    [
        ({}, (2, 4)),
        ({"prompt_lookup_min": None, "prompt_lookup_max": None}, (2, 4)),
        ({"vllm_defaults": True}, (5, 5)),
        ({"vllm_defaults": True, "prompt_lookup_max": 3}, (3, 3)),
        ({"prompt_lookup_max": 3}, (3, 3)),
        ({"prompt_lookup_min": 7}, (7, 7)),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, (2, 4)),
        ({"prompt_lookup_min": 4, "prompt_lookup_max": 4}, (4, 4)),
    ],
)
def test_missing_lengths_mirror_or_are_the_defaults(keys, lengths):
    config = make(**keys)
    assert (config.prompt_lookup_min, config.prompt_lookup_max) == lengths
    assert config.lengths == lengths
    assert config.match == "recent"


def test_min_above_max_names_both_and_the_remedy():
    with pytest.raises(ValueError, match="prompt_lookup_min=4 is greater than prompt_lookup_max=3; lower"):
        make(prompt_lookup_min=4, prompt_lookup_max=3)


@pytest.mark.parametrize("key", ["prompt_lookup_min", "prompt_lookup_max"])
def test_lengths_below_one_name_the_offending_key_only(key):
    with pytest.raises(ValidationError) as caught:
        make(**{key: 0})
    assert [error["loc"] for error in caught.value.errors()] == [(key,)]


def test_unknown_match_lists_the_choices():
    with pytest.raises(ValidationError, match="'recent' or 'first'"):
        make(match="latest")


def test_a_revision_is_not_silently_ignored():
    with pytest.raises(ValueError, match="revision='main': prompt lookup has no draft model"):
        make(revision="main")


def test_unknown_keys_are_refused_and_the_model_is_frozen():
    with pytest.raises(ValidationError, match="prompt_lookup"):
        make(prompt_lookup=3)
    with pytest.raises(ValidationError, match="frozen"):
        make().match = "first"
