"""The `synthetic_*` keys of `speculative_config`: one of them, for each position a rate, and nothing with other samplers."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import parse_speculative_config
from specdec_runtime.samplers.synthetic import SyntheticConfig

BASE = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 3}
SYNTHETIC = {**BASE, "rejection_sample_method": "synthetic"}


def error_of(keys: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_speculative_config(keys)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "rates"),
    [
        ("synthetic_acceptance_rates", [0.9, 0.5, 0.2], (0.9, 0.5, 0.2)),
        ("synthetic_acceptance_length", 2.5, (1.0, 0.5, 0.0)),
        ("synthetic_acceptance_rate", 1.0, (1.0, 1.0, 1.0)),
    ],
)
def test_every_key_becomes_rates(key: str, value: Any, rates: tuple[float, ...]) -> None:
    resolved = parse_speculative_config({**SYNTHETIC, key: value})
    assert resolved is not None
    assert isinstance(resolved.sampler_config, SyntheticConfig)
    assert resolved.sampler_config.rates == rates


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "the sampler 'synthetic' needs one of 'synthetic_acceptance_rate', 'synthetic_acceptance_rates', "
         "'synthetic_acceptance_length'"),
        ({"synthetic_acceptance_length": 2.0, "synthetic_acceptance_rate": 0.5},
         "the sampler 'synthetic' needs one of 'synthetic_acceptance_rate', 'synthetic_acceptance_rates', "
         "'synthetic_acceptance_length', not several"),
        ({"synthetic_acceptance_rate": 1.5},
         "'synthetic_acceptance_rate' = 1.5: input should be less than or equal to 1"),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1]},
         "'synthetic_acceptance_rates': rates must not rise: a token is accepted only where all before it are"),
        ({"synthetic_acceptance_rates": [1.1, 0.5, 0.1]},
         "'synthetic_acceptance_rates': every rate must lie in [0, 1]"),
        ({"synthetic_acceptance_rates": [0.5]},
         "'synthetic_acceptance_rates': needs one rate for each of 3 tokens, got 1"),
        ({"synthetic_acceptance_length": 4.5}, "'synthetic_acceptance_length': must lie in [1, 4], got 4.5"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(keys: dict[str, Any], message: str) -> None:
    assert error_of(SYNTHETIC | keys) == f"speculative_config: {message}"


def test_the_keys_do_nothing_with_another_sampler() -> None:
    assert error_of({**BASE, "synthetic_acceptance_rate": 0.5}) == (
        "speculative_config: 'synthetic_acceptance_rate' is a key of 'rejection_sample_method': 'synthetic', not of 'strict'"
    )


def test_without_a_number_of_tokens_a_length_cannot_be_spread() -> None:
    assert SyntheticConfig(synthetic_acceptance_rates=(0.8, 0.5)).rates == (0.8, 0.5)
    with pytest.raises(ValueError, match="'synthetic_acceptance_length': needs 'num_speculative_tokens' too"):
        SyntheticConfig(synthetic_acceptance_length=2.0)
