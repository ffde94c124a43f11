"""Tokens of cache on devices of some sizes, with logits for every row of a step, and for as many as a step may need.

    python benchmarks/cache_tokens.py

The planner is the engine's (`specdec_runtime.scorers.memory`), on devices that are made up: all their memory is free, and
the weights are taken. What a pass holds besides its logits is estimated by the largest of a layer's intermediate results.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from common.provenance import provenance
from common.results import RESULTS

from specdec import EngineOptions
from specdec.engine.scheduler import most_logits_rows
from specdec_kernels.cuda.graphs import MAX_BYTES
from specdec_runtime.scorers.memory import logits_bytes, num_slots

_BYTES = 2  # bfloat16
_SIZES_GB = (16, 24, 80)
_DRAFTED = (0, 5)
_MAX_MODEL_LEN = 8192


@dataclass(frozen=True)
class Model:
    """Sizes of a published model's text part."""

    name: str
    num_parameters: float
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    kv_width: int
    """Key and value heads of a layer times their size."""

    @property
    def bytes_per_token(self) -> int:
        """Of the cache."""
        return 2 * self.num_layers * self.kv_width * _BYTES


MODELS = (
    Model("Llama 3.1 8B", 8.03e9, 128256, 4096, 14336, 32, 8 * 128),
    Model("Gemma 3 4B", 3.88e9, 262208, 2560, 10240, 34, 4 * 256),
    Model("Gemma 3 27B", 27.0e9, 262208, 5376, 21504, 62, 16 * 128),
)


def tokens(model: Model, size_gb: int, num_logits: int) -> int:
    """Return the slots of the cache; 0 if a request of the maximum length does not fit."""
    options = EngineOptions(model=model.name, max_model_len=_MAX_MODEL_LEN)
    total, weights = size_gb * 2**30, int(model.num_parameters * _BYTES)
    rows = options.max_num_batched_tokens
    layer = rows * (2 * model.intermediate_size + 3 * model.hidden_size) * _BYTES
    logits = num_logits * model.vocab_size * _BYTES + rows * model.hidden_size * _BYTES
    needed = max(layer, logits) + logits_bytes(num_logits * model.vocab_size) + MAX_BYTES
    target: Any = SimpleNamespace(device=torch.device("cuda"), max_model_len=_MAX_MODEL_LEN)
    with (
        patch.object(torch.cuda, "mem_get_info", lambda device: (total - weights, total)),
        patch.object(torch.cuda, "memory_allocated", lambda device: weights),
    ):
        try:
            return num_slots(options, target, model.bytes_per_token, lambda: needed)
        except ValueError:
            return 0


def main() -> None:
    """Print the table and write `results/cache_tokens.json`."""
    rows = []
    for model in MODELS:
        for size in _SIZES_GB:
            most = [most_logits_rows(64, drafted, 2048) for drafted in _DRAFTED]
            found = [tokens(model, size, num_logits) for num_logits in (2048, *most)]
            rows.append([model.name, size, *found])
            print(*rows[-1], sep=" | ")
    columns = ["model", "memory_gb", "all_rows", *(f"drafts_of_{drafted}" for drafted in _DRAFTED)]
    settings = {
        "max_model_len": _MAX_MODEL_LEN,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "dtype": "bfloat16",
    }
    content = {"environment": provenance(), "settings": settings, "columns": columns, "rows": rows}
    (RESULTS / "cache_tokens.json").write_text(
        json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
