"""`model.generate` as `specdec check --host transformers` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from specdec.metrics import Counter
from specdec_transformers.attached import metrics, release
from specdec_transformers.generate import generate


class CheckedEngine:
    """A model in float32; `specdec_testing.hosts.Host` says what its functions do."""

    reads_gguf = False

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self._model.generation_config.eos_token_id = None
        options = {"max_model_len": max_model_len, "enable_prefix_caching": caches_prefixes}
        self._keys: dict[str, Any] = {
            "speculative_config": dict(speculative_config),
            "engine_options": options,
        }

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        """Return the tokens after each prompt; a call has one number of tokens, so prompts of one number share it."""
        texts: dict[int, list[int]] = {}
        for count in dict.fromkeys(num_tokens):
            rows = [row for row, wanted in enumerate(num_tokens) if wanted == count]
            width = max(len(prompts[row]) for row in rows)
            ids = torch.tensor([[0] * (width - len(prompts[row])) + [*prompts[row]] for row in rows])
            mask = torch.tensor([[0] * (width - len(prompts[row])) + [1] * len(prompts[row]) for row in rows])
            output = self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=count,
                do_sample=False,
                custom_generate=generate,
                **self._keys,
            )
            texts |= dict(zip(rows, output[:, width:].tolist(), strict=True))
        return [texts[row] for row in range(len(prompts))]

    def counters(self) -> Mapping[str, Any]:
        """Return the counters of the last engine."""
        return {metric.name: metric.value for metric in metrics(self._model) if isinstance(metric, Counter)}

    def close(self) -> None:
        """Free the engine."""
        release(self._model)
