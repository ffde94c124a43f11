"""Facts about the target that the configuration needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.config.checkpoint import Checkpoint, find_number
from specdec.errors import ConfigError
from specdec.target_facts import TargetFacts

VOCABULARY_KEYS = ("text_config.vocab_size", "vocab_size")
CONTEXT_KEYS = (
    "text_config.max_position_embeddings",
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
)
"""Keys of a model's `config.json`."""


def target_facts(model: str, dtype: str = "auto") -> TargetFacts:
    """Return the facts about a target from its `config.json`.

    Args:
        model: directory or hub id, as `resolve_name` returns it.
        dtype: the dtype the engine runs in.

    Raises:
        ConfigError: if it cannot be found.
    """
    checkpoint = Checkpoint(model)
    if checkpoint.config is None:
        raise ConfigError(f"--model: {checkpoint.problem}")
    return facts_in(checkpoint.config, model=model, dtype=dtype)


def facts_in(config: Mapping[str, Any], max_model_len: int | None = None, **others: Any) -> TargetFacts:
    """Return the facts that a `config.json` states, with the engine's own `max_model_len`, if given, and other fields."""
    return TargetFacts(
        hf_config=config,
        vocab_size=find_number(config, *VOCABULARY_KEYS),
        max_model_len=max_model_len or find_number(config, *CONTEXT_KEYS),
        **others,
    )
