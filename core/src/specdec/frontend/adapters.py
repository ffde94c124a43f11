"""Finds the adapters (LoRA) of requests."""

from __future__ import annotations

from collections.abc import Callable

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec.interfaces.adapter import Adapter
from specdec.lora import LoRARequest
from specdec.messages import did_you_mean


class Adapters:
    """The adapters that requests may choose.

    Args:
        options: the engine's.
        load: see `Scorer.load_adapter`.
    """

    def __init__(self, options: EngineOptions, load: Callable[[LoRARequest], Adapter]) -> None:
        self._named, self._is_enabled, self._load = options.adapters, options.serves_adapters, load
        self.paths = {name: request.lora_path for name, request in self._named.items()}
        """The paths of those that have a name."""

    def find(self, wanted: object) -> Adapter | None:
        """Return the adapter for a `LoRARequest` or a name in `lora_modules`; None for None.

        Raises:
            ConfigError: for an unknown name, an adapter that cannot be served, and anything else.
        """
        if wanted is None:
            return None
        if not self._is_enabled:
            raise ConfigError(
                f"lora_request = {wanted!r} needs LLM(enable_lora=True), or lora_modules with adapters by name"
            )
        if isinstance(wanted, str):
            if wanted not in self._named:
                hint = did_you_mean(wanted, self._named)
                raise ConfigError(
                    f"lora_request: there is no adapter {wanted!r}{hint} lora_modules has: {', '.join(self._named) or 'none'}"
                )
            wanted = self._named[wanted]
        if not isinstance(wanted, LoRARequest):
            raise ConfigError(
                f"lora_request = {wanted!r} must be a LoRARequest, or a name in lora_modules, not {type(wanted).__name__}"
            )
        return self._load(wanted)
