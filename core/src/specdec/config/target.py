"""Facts about the target that the configuration needs."""

from __future__ import annotations

from specdec.config.checkpoint import Checkpoint
from specdec.errors import ConfigError
from specdec.target_facts import TargetFacts

VOCABULARY_KEYS = ("vocab_size", "text_config.vocab_size")
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "text_config.max_position_embeddings",
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
    return TargetFacts(
        model=model,
        hf_config=checkpoint.config,
        vocab_size=checkpoint.number(*VOCABULARY_KEYS),
        max_model_len=checkpoint.number(*CONTEXT_KEYS),
        dtype=dtype,
    )
