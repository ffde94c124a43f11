"""Facts about the target that are known before its weights are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TargetFacts"]


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
