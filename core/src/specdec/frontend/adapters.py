"""Finds the adapters (LoRA) of requests."""

from __future__ import annotations

from weakref import ref

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError, EngineError
from specdec.interfaces.adapter import Adapter
from specdec.interfaces.scorer import Scorer
from specdec.lora import LoRARequest
from specdec.messages import did_you_mean


class Adapters:
    """The adapters that requests may choose.

    Args:
        options: the engine's.
        scorer: loads them; after `shutdown` nothing keeps it, nor the target.
    """

    def __init__(self, options: EngineOptions, scorer: Scorer) -> None:
        self._named, self._is_enabled, self._scorer = options.adapters, options.serves_adapters, ref(scorer)
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
        scorer = self._scorer()
        if scorer is None:
            raise EngineError("this LLM has been shut down: make a new one")
        return scorer.load_adapter(wanted)
