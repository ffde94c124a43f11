"""What is compared: an engine in one configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from common.protocol import Settings


@dataclass(frozen=True)
class Variant:
    """An engine in one configuration. Two variants are the same process where all fields agree."""

    engine: str
    """`specdec`, `transformers`, `vllm`, `llama_cpp` or `stub`: the module `workers.<engine>_worker`."""
    config: str
    """A short name, as in `ngram k=4`."""
    dtype: str
    settings_json: str = field(default="{}", repr=False)
    weights: str = ""
    """Which weights, where they are others than those of the model's folder: the same tokens are not to be expected."""

    @classmethod
    def make(
        cls, engine: str, config: str, dtype: str, settings: Settings | None = None, weights: str = ""
    ) -> Variant:
        """Make a variant from a settings mapping."""
        return cls(engine, config, dtype, json.dumps(settings or {}, sort_keys=True), weights)

    @property
    def name(self) -> str:
        """Name for tables: `vllm ngram k=4`."""
        return f"{self.engine} {self.config}"

    @property
    def settings(self) -> Settings:
        """The engine's own keys."""
        loaded: Settings = json.loads(self.settings_json)
        return loaded
