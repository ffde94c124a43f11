"""Position scaling of GGUF files, which transformers does not read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PretrainedConfig

from specdec import ModelError

_FACTORS = "rope_freqs.weight"
"""The tensor of divisors of the rotary frequencies, one number per frequency."""
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Parameters that all published models of the kind `llama3` share; the factor differs."""


def set_position_scaling(
    config: PretrainedConfig, file: Path, fields: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> None:
    """Put the file's position scaling into the configuration.

    Args:
        config: the model's configuration, as made by transformers.
        file: the file, for messages.
        fields: the file's metadata.
        tensors: the file's tensors by name.

    Raises:
        ModelError: if the scaling is not supported here, because the model would compute something else without it.
    """
    parameters = dict(getattr(config, "rope_parameters", None) or {})
    if parameters.get("rope_type", "default") != "default":
        return
    kind = fields.get(f"{fields.get('general.architecture')}.rope.scaling.type", "none")
    if kind != "none":
        raise ModelError(
            f"{file} scales positions (rope.scaling.type {kind!r}), which transformers does not read from a GGUF file: take "
            "the model as safetensors"
        )
    if _FACTORS not in tensors:
        return
    factors = np.asarray(tensors[_FACTORS], np.float64)
    scaling = {"factor": float(factors.max()), **_LLAMA3}
    if not np.allclose(
        factors, _llama3_factors(len(factors), float(parameters["rope_theta"]), scaling), rtol=1e-4
    ):
        raise ModelError(
            f"{file} scales positions by factors ({_FACTORS}) that are not those of Llama 3.1: take the model as safetensors"
        )
    config.rope_parameters = {**parameters, "rope_type": "llama3", **scaling}


def _llama3_factors(count: int, theta: float, scaling: Mapping[str, float]) -> np.ndarray:
    """Return the divisors of the frequencies for `rope_type` `llama3` of transformers."""
    wavelengths = 2.0 * math.pi * theta ** (np.arange(count) / count)
    turns = scaling["original_max_position_embeddings"] / wavelengths
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - share) / scaling["factor"] + share)
