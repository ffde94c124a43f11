"""The mask token of models for parallel drafting."""

from __future__ import annotations

from typing import Any

from specdec import ConfigError

KEYS = ("pard_token", "mask_token_id", "ptd_token_id", "dflash_config.mask_token_id")
"""Configuration keys that hold it, in the order of lookup."""


def mask_token(config: Any, vocab_size: int, model: str) -> int:
    """Return the id of the mask token that a model's configuration names.

    Args:
        config: the `transformers` configuration.
        vocab_size: number of the draft's ids.
        model: its directory or hub id, for messages.

    Raises:
        ConfigError: if none is named, or if the id is outside the vocabulary.
    """
    for key in KEYS:
        value = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < vocab_size:
            raise ConfigError(
                f"{model}: config.json has {key} = {value!r}, which is none of its {vocab_size} ids"
            )
        return value
    raise ConfigError(
        f"speculative_config: 'parallel_drafting' needs a model with a mask token: config.json of {model} has none of "
        f"{', '.join(KEYS)}; leave 'parallel_drafting' out for a model that was not trained for it"
    )
