"""Defaults, bounds and messages of the configuration."""

import pytest
from pydantic import ValidationError

from specdec import ConfigError
from specdec.config import parse_speculative_config
from specdec_plugin_suffix import SuffixConfig


def make(**keys):
    return SuffixConfig(num_speculative_tokens=3, **keys)


def test_defaults_are_those_of_vllm() -> None:
    config = make()
    assert config.suffix_decoding_max_tree_depth == 24
    assert config.suffix_decoding_max_cached_requests == 10000
    assert config.suffix_decoding_max_spec_factor == 1.0
    assert config.suffix_decoding_min_token_prob == 0.1
    assert config.use_tree_spec is False
    assert config.suffix_decoding_cache_path is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("suffix_decoding_max_tree_depth", 0),
        ("suffix_decoding_max_cached_requests", -1),
        ("suffix_decoding_max_cached_requests", 2**31),
        ("suffix_decoding_max_spec_factor", -0.5),
        ("suffix_decoding_max_spec_factor", float("inf")),
        ("suffix_decoding_min_token_prob", -0.1),
        ("suffix_decoding_min_token_prob", 1.1),
        ("suffix_decoding_min_token_prob", float("nan")),
        ("suffix_decoding_time_budget_ms", 0),
        ("use_tree_spec", "sometimes"),
    ],
)
def test_values_out_of_bounds_name_the_key(key, value) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**{key: value})
    assert [error["loc"] for error in caught.value.errors()] == [(key,)]


def test_a_file_without_memory_is_a_contradiction() -> None:
    with pytest.raises(
        ValueError, match=r"suffix_decoding_cache_path='a' with .*max_cached_requests=0: nothing"
    ):
        make(suffix_decoding_cache_path="a", suffix_decoding_max_cached_requests=0)


def test_a_revision_is_not_silently_ignored() -> None:
    with pytest.raises(ValueError, match="revision='main': suffix decoding has no draft model"):
        make(revision="main")


def test_k_is_the_depth_of_the_trees_unless_given() -> None:
    resolved = parse_speculative_config({"method": "suffix"})
    assert resolved.proposer_config.num_speculative_tokens == 24
    resolved = parse_speculative_config({"method": "suffix", "suffix_decoding_max_tree_depth": 9})
    assert resolved.proposer_config.num_speculative_tokens == 9
    resolved = parse_speculative_config({"method": "suffix", "num_speculative_tokens": 4})
    assert resolved.config.num_speculative_tokens == 4


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="suffix_decoding_max_tree_depth"):
        parse_speculative_config({"method": "suffix", "suffix_decoding_max_depth": 9})


def test_a_depth_that_gives_no_tokens_is_named_as_it_was_given() -> None:
    with pytest.raises(
        ConfigError, match="'suffix_decoding_max_tree_depth' = 0: input should be greater than 0"
    ):
        parse_speculative_config({"method": "suffix", "suffix_decoding_max_tree_depth": 0})
