"""Facts about the target that the configuration needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.checkpoint import Checkpoint
from specdec.errors import ConfigError

VOCABULARY_KEYS = ("vocab_size", "text_config.vocab_size")
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "text_config.max_position_embeddings",
)
"""Keys of a model's `config.json`."""


@dataclass(frozen=True)
class TargetFacts:
    """Facts about the target from its `config.json` and the engine's arguments."""

    model: str | None
    """Directory or hub id; None for a model that was passed as an object."""
    hf_config: Mapping[str, Any] = field(default_factory=dict)
    """Its `config.json`."""
    vocab_size: int | None = None
    max_model_len: int | None = None
    """The longest context the engine runs, in tokens."""
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    """The engine's dtype; a GGUF draft is dequantised to it."""


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
