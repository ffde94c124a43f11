"""The adapter's settings, from the environment, and the arguments of SGLang that follow from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec import ConfigError
from specdec.config import Checkpoint, TargetFacts, parse_speculative_config, read_mapping
from specdec.interfaces import Capability

VARIABLE = "SPECDEC_CONFIG"
"""The environment variable with our `speculative_config` and the keys below."""
LATE_KEY = "late_drafts"
"""Whether host proposers draft before the tokens of the running step are known; by default on a device, if SGLang overlaps."""
MEMORY_KEY = "kv_cache_memory_bytes"
"""Bytes for the KV caches of models that the proposer runs."""
_EXAMPLE = f'{VARIABLE}=\'{{"method": "ngram", "num_speculative_tokens": 5}}\''
_VERIFIER_KEY = "rejection_sample_method"


@dataclass(frozen=True)
class Settings:
    """What `SPECDEC_CONFIG` says."""

    speculative_config: Mapping[str, Any]
    late_drafts: bool | None = None
    kv_cache_memory_bytes: int | None = None


def read_settings(value: object = None) -> Settings:
    """Return the settings.

    Args:
        value: a mapping, JSON or YAML text, or the path of a file with either; None reads the environment.

    Raises:
        ConfigError: if there are none, or a key contradicts what SGLang does.
    """
    given = os.environ.get(VARIABLE) if value is None else value
    if given is None:
        raise ConfigError(f"--speculative-algorithm SPECDEC needs a configuration: {_EXAMPLE}")
    config = read_mapping(given)
    late, memory = config.pop(LATE_KEY, None), config.pop(MEMORY_KEY, None)
    if late is not None and not isinstance(late, bool):
        raise ConfigError(f"{VARIABLE}: {LATE_KEY!r} is {late!r}: give true or false")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0):
        raise ConfigError(f"{VARIABLE}: {MEMORY_KEY!r} is {memory!r}: give a number of bytes above 0")
    if _VERIFIER_KEY in config:
        raise ConfigError(
            f"{VARIABLE}: {_VERIFIER_KEY!r} has no effect in SGLang, which verifies drafts itself: leave it out"
        )
    if config.get("adaptive"):
        raise ConfigError(
            f"{VARIABLE}: 'adaptive' has no effect in SGLang, which verifies as many tokens of each request, drafted or "
            "not: leave it out"
        )
    return Settings(config, late, memory)


def set_arguments(arguments: Any, settings: Settings) -> None:
    """Set what SGLang has to know of the drafts in its arguments.

    Args:
        arguments: SGLang's `ServerArgs`, of which a user may have set anything.
        settings: ours.

    Raises:
        ConfigError: for arguments that contradict the settings, or that drafts do not work with.
        PluginError: for a method that is not installed or cannot be loaded.
    """
    width = arguments.speculative_num_draft_tokens
    config = with_width(settings.speculative_config, width)
    facts = TargetFacts(arguments.model_path, Checkpoint(arguments.model_path).config or {})
    resolved = parse_speculative_config(config, target=facts)
    assert resolved is not None
    k = resolved.config.num_speculative_tokens
    assert k is not None
    if getattr(arguments, "attn_dp_size", 1) > 1 or getattr(arguments, "enable_dp_attention", False):
        raise ConfigError(
            "--speculative-algorithm SPECDEC does not run with data parallel attention: turn it off"
        )
    if getattr(arguments, "pp_size", 1) > 1:
        raise ConfigError(
            "--speculative-algorithm SPECDEC does not run with pipeline parallelism: use --pp-size 1"
        )
    arguments.speculative_num_draft_tokens = k + 1
    arguments.speculative_num_steps = k
    arguments.speculative_eagle_topk = arguments.speculative_eagle_topk or 1
    arguments.max_running_requests = arguments.max_running_requests or 48  # as for SGLang's own n-grams
    arguments.enable_mixed_chunk = False
    if resolved.proposer_class.capabilities & {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}:
        arguments.enable_return_hidden_states = True
        arguments.return_hidden_states_mode = "full"


def with_width(config: Mapping[str, Any], width: int | None) -> dict[str, Any]:
    """Return a `speculative_config` for drafts of `width` - 1 tokens; None leaves the number to the configuration.

    Raises:
        ConfigError: if it says another number itself.
    """
    if width is None:
        return dict(config)
    k = config.get("num_speculative_tokens", width - 1)
    if k != width - 1:
        raise ConfigError(
            f"--speculative-num-draft-tokens {width} is one more than the drafted tokens, and {VARIABLE} has "
            f"'num_speculative_tokens' = {k}: leave one of them out"
        )
    return {**config, "num_speculative_tokens": k}
