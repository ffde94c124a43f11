"""SGLang as `specdec check --host sglang` runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from specdec_sglang.plugin import NAME
from specdec_sglang.settings import VARIABLE


class CheckedEngine:
    """SGLang's `Engine` in float32; `specdec_testing.hosts.Host` says what its functions do."""

    reads_gguf = False

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        import sglang

        os.environ[VARIABLE] = json.dumps(speculative_config)
        is_cpu = not torch.cuda.is_available()
        self._engine = sglang.Engine(
            model_path=model,
            dtype="float32",
            device="cpu" if is_cpu else "cuda",
            mem_fraction_static=0.2 if is_cpu else None,
            context_length=max_model_len,
            max_total_tokens=8192,
            max_running_requests=8,
            disable_radix_cache=not caches_prefixes,
            skip_server_warmup=True,
            log_level="error",
            speculative_algorithm=NAME,
        )

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        """Return the tokens after each prompt."""
        params = [{"temperature": 0, "max_new_tokens": count, "ignore_eos": True} for count in num_tokens]
        outputs = self._engine.generate(input_ids=[[*prompt] for prompt in prompts], sampling_params=params)
        return [list(output["output_ids"]) for output in outputs]

    def counters(self) -> Mapping[str, Any]:
        """Return the proposer's counters."""
        counters: Mapping[str, Any] = self._engine.get_server_info()["internal_states"][0]["specdec"]
        return counters

    def close(self) -> None:
        """End SGLang's processes."""
        self._engine.shutdown()
