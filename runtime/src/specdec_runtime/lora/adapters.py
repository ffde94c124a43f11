"""The adapters that are loaded."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping

import torch

from specdec import EngineOptions, LoRARequest
from specdec.config import Checkpoint
from specdec.errors import ConfigError
from specdec_runtime.lora.adapter import LoadedAdapter
from specdec_runtime.lora.linear_maps import LinearMap
from specdec_runtime.lora.peft_config import read_config
from specdec_runtime.lora.peft_weights import read_weights

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class Adapters:
    """Loads adapters for one model and keeps them: those of `lora_modules`, and the last ones that requests brought.

    Thread-safe.

    Args:
        maps: the model's linear maps by name.
        dtype: that of the products.
        options: the engine's; the adapters of `lora_modules` are loaded now.

    Raises:
        ConfigError: as `load`.
    """

    def __init__(self, maps: Mapping[str, LinearMap], dtype: torch.dtype, options: EngineOptions) -> None:
        self._maps, self._dtype = maps, dtype
        self._max_rank, self._most = options.max_lora_rank, options.max_cpu_loras
        self._numbers = itertools.count(1)
        self._turn = threading.Lock()
        self._named = {request: self._read(request) for request in options.adapters.values()}
        self._brought: OrderedDict[tuple[int, str], LoadedAdapter] = OrderedDict()

    def load(self, request: LoRARequest) -> LoadedAdapter:
        """Return an adapter, loading it if it is not.

        Raises:
            ConfigError: if it cannot be read or does not fit the model.
        """
        if request in self._named:
            return self._named[request]
        identity = request.lora_int_id, request.lora_path
        with self._turn:
            found = self._brought.pop(identity, None) or self._read(request)
            self._brought[identity] = found
            if len(self._brought) > self._most:  # requests that run keep theirs
                self._brought.popitem(last=False)
        return found

    def _read(self, request: LoRARequest) -> LoadedAdapter:
        folder = Checkpoint(request.lora_path)
        try:
            config, weights = folder.file(_CONFIG), folder.file(_WEIGHTS)
            if config is None or weights is None:
                missing = _CONFIG if config is None else _WEIGHTS
                raise ConfigError(
                    f"{request.lora_path!r} has no {missing}: give a folder that PEFT's save_pretrained wrote"
                )
            products = read_weights(weights, read_config(config, self._max_rank), self._maps, self._dtype)
        except ConfigError as error:
            raise ConfigError(f"adapter {request.lora_name!r}: {error}") from None
        return LoadedAdapter(str(next(self._numbers)), products)
