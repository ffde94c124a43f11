"""The adapter's settings in vLLM's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec import ConfigError

KEY = "specdec"
"""The key of vLLM's `additional_config` that holds our `speculative_config`."""
MEMORY_KEY = "specdec_kv_cache_memory_bytes"
"""The key for the KV cache memory of models that the proposer runs."""
PROPOSER = "specdec_vllm.Proposer"
"""The `model` of vLLM's `speculative_config`."""
EXAMPLE = (
    '--speculative-config \'{"method": "ngram_gpu", "num_speculative_tokens": 5}\' '
    '--additional-config \'{"specdec": {"method": "ngram"}}\''
)


@dataclass(frozen=True)
class Settings:
    """The part of vLLM's configuration for this adapter."""

    speculative_config: Mapping[str, Any]
    """Our `speculative_config`, with `num_speculative_tokens` set."""
    num_speculative_tokens: int
    """vLLM's value: the most tokens its scheduler accepts."""
    kv_cache_memory_bytes: int | None


def read_settings(vllm_config: Any, *, is_v2: bool = False) -> Settings | None:
    """Return the settings, or None for an engine without speculation.

    Args:
        vllm_config: vLLM's whole configuration.
        is_v2: whether vLLM uses its V2 model runner, where the adapter takes the place of `ngram_gpu`.

    Raises:
        ConfigError: if one of the two settings is missing, they contradict each other, or one of our keys is unknown.
    """
    additional = vllm_config.additional_config
    additional = additional if isinstance(additional, Mapping) else {}
    unknown = [name for name in additional if name.startswith(KEY) and name not in (KEY, MEMORY_KEY)]
    if unknown:
        raise ConfigError(f"additional_config has no {unknown[0]!r}: use {KEY!r} or {MEMORY_KEY!r}")
    theirs, ours = vllm_config.speculative_config, additional.get(KEY)
    if theirs is None and ours is None:
        return None
    if theirs is None:
        raise ConfigError(f"additional_config[{KEY!r}] needs vLLM's speculative_config beside it: {EXAMPLE}")
    is_way_in = is_v2 and theirs.method == "ngram_gpu" and ours is not None
    if not is_way_in and (theirs.method != "custom_class" or theirs.model != PROPOSER):
        raise ConfigError(
            f"speculative_config: this worker runs specdec's proposers, not method {theirs.method!r} of model "
            f"{theirs.model!r}: {EXAMPLE}"
        )
    if not isinstance(ours, Mapping):
        raise ConfigError(f"additional_config[{KEY!r}] must be specdec's speculative_config: {EXAMPLE}")
    return Settings(
        speculative_config=with_limit(ours, theirs.num_speculative_tokens),
        num_speculative_tokens=theirs.num_speculative_tokens,
        kv_cache_memory_bytes=additional.get(MEMORY_KEY),
    )


def with_limit(ours: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return our `speculative_config` with vLLM's `num_speculative_tokens` as default.

    Raises:
        ConfigError: if it requests more than vLLM's scheduler accepts.
    """
    k = ours.get("num_speculative_tokens", limit)
    if isinstance(k, int) and k > limit:
        raise ConfigError(
            f"additional_config[{KEY!r}]: num_speculative_tokens={k} is more than the {limit} of vLLM's speculative_config: "
            "raise that one"
        )
    return {**ours, "num_speculative_tokens": k}
