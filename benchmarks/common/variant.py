"""The unit of comparison: an engine in one configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from common.protocol import Settings


@dataclass(frozen=True)
class Variant:
    """An engine in one configuration. Variants whose fields are all equal share one process."""

    engine: str
    """`specdec`, `transformers`, `vllm`, `llama_cpp` or `stub`: the module `workers.<engine>_worker`."""
    config: str
    """A short name, as in `ngram k=4`."""
    dtype: str
    settings_json: str = field(default="{}", repr=False)
    weights: str = ""
    """Name of the weights if they differ from those of the model's folder; then the tokens may differ."""

    @classmethod
    def make(
        cls, engine: str, config: str, dtype: str, settings: Settings | None = None, weights: str = ""
    ) -> Variant:
        """Make a variant from a settings mapping."""
        return cls(engine, config, dtype, json.dumps(settings or {}, sort_keys=True), weights)

    @property
    def name(self) -> str:
        """Name for tables, such as `vllm ngram k=4`."""
        return f"{self.engine} {self.config}"

    @property
    def settings(self) -> Settings:
        """The engine's own keys."""
        loaded: Settings = json.loads(self.settings_json)
        return loaded
