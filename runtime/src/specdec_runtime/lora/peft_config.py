"""Reads PEFT's `adapter_config.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from specdec.config import read_mapping_of
from specdec.errors import ConfigError

Value = TypeVar("Value", int, float)

_WITHOUT_EFFECT = frozenset(
    {
        "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
        "exclude_modules", "layers_to_transform", "layers_pattern", "lora_dropout", "fan_in_fan_out", "megatron_core",
        "qalora_group_size", "eva_config", "runtime_config", "ensure_weight_tying",
    }
)  # fmt: skip
"""Keys that say how an adapter was made or found its modules, which the names of its tensors say as well."""
_READ = frozenset(
    {
        "r",
        "lora_alpha",
        "target_modules",
        "use_rslora",
        "rank_pattern",
        "alpha_pattern",
        "init_lora_weights",
        "bias",
    }
)
_BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal", "olora_converted")
"""Values of `init_lora_weights` that leave the weights of the model alone."""


@dataclass(frozen=True)
class PeftConfig:
    """What an adapter's configuration says of its products."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    """By patterns of module names, where they differ."""
    alphas: Mapping[str, float]
    is_rank_stabilised: bool
    """Whether the scaling is `alpha / sqrt(rank)` (rsLoRA, arXiv 2312.03732) instead of `alpha / rank`."""
    targets: tuple[str, ...]
    """Names of modules, or their ends; empty if a pattern chose them."""

    def rank_of(self, module: str) -> int:
        """Return the rank of a module's products."""
        return _matching(self.ranks, module, self.rank)

    def scaling_of(self, module: str) -> float:
        """Return the factor of a module's products."""
        rank = self.rank_of(module)
        return _matching(self.alphas, module, self.alpha) / (rank**0.5 if self.is_rank_stabilised else rank)


def read_config(file: Path, max_rank: int) -> PeftConfig:
    """Return the configuration in a file.

    Raises:
        ConfigError: naming the key that is not served, or has no sense.
    """
    given = read_mapping_of(file)
    if given.get("peft_type") != "LORA":
        raise ConfigError(f"{file}: 'peft_type' = {given.get('peft_type')!r} is not served: only LORA is")
    unknown = [key for key in given if given[key] and key not in _WITHOUT_EFFECT | _READ]
    for key in unknown:
        raise ConfigError(
            f"{file}: {key!r} = {given[key]!r:.80} is not served: merge the adapter into the model"
        )
    if given.get("bias", "none") != "none":
        raise ConfigError(f"{file}: 'bias' = {given['bias']!r} is not served: train with 'none', or merge it")
    if given.get("init_lora_weights") not in _BEGINNINGS:
        raise ConfigError(
            f"{file}: 'init_lora_weights' = {given['init_lora_weights']!r} changed the model's own weights: save the adapter "
            "with path_initial_model_for_weight_conversion"
        )
    ranks, alphas = given.get("rank_pattern") or {}, given.get("alpha_pattern") or {}
    targets = given.get("target_modules")
    config = PeftConfig(
        _number(file, "r", given.get("r"), int),
        _number(file, "lora_alpha", given.get("lora_alpha"), float),
        {key: _number(file, "rank_pattern", rank, int) for key, rank in ranks.items()},
        {key: _number(file, "alpha_pattern", alpha, float) for key, alpha in alphas.items()},
        bool(given.get("use_rslora")),
        tuple(targets) if isinstance(targets, list) else (),
    )
    highest = max(config.rank, *config.ranks.values(), 0)
    if highest > max_rank:
        raise ConfigError(f"{file}: rank {highest} is above max_lora_rank={max_rank}: raise that argument")
    return config


def _number(file: Path, key: str, value: Any, kind: type) -> Any:
    is_number = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    if not is_number or (kind is int and value < 1):
        raise ConfigError(
            f"{file}: {key!r} has {value!r}, which is no {'number' if kind is float else 'rank'}"
        )
    return value


def _matching(patterns: Mapping[str, Value], module: str, otherwise: Value) -> Value:
    """Return the value of the first pattern that a module's name, or its end, matches, as PEFT does."""
    return next((v for key, v in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), otherwise)
