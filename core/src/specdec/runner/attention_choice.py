"""Chooses the attention of a runner: a backend's if it agrees with torch on this device, else torch's."""

from __future__ import annotations

import logging

from transformers import PretrainedConfig

from specdec import registry
from specdec.errors import ConfigError
from specdec.interfaces.attention import AttentionFactory, AttentionNeeds
from specdec.interfaces.backend import Declined
from specdec.registry import Group
from specdec.registry.offers import first_offer
from specdec.runner.attention_probe import disagreement
from specdec.runner.sdpa import SdpaAttention

logger = logging.getLogger("specdec")

TORCH = "sdpa"
"""Name of torch's own attention."""


def check_name(wanted: str) -> None:
    """Check a value of the option `attention_backend` before a model is loaded.

    Raises:
        ConfigError: if it names nothing that is installed or official.
    """
    names = dict.fromkeys(("auto", TORCH, "triton", *(i.name for i in registry.installed(Group.BACKENDS))))
    if wanted not in names:
        raise ConfigError(f"LLM: attention_backend={wanted!r} must be one of {', '.join(names)}")


def choose_attention(wanted: str, needs: AttentionNeeds, config: PretrainedConfig) -> AttentionFactory:
    """Return the factory for a value of the option `attention_backend`.

    Args:
        wanted: `auto` asks every backend, `sdpa` takes torch's attention, other values name a backend.
        needs: what the model needs.
        config: the model's configuration; a backend is tried with its head counts and head size.

    Raises:
        ConfigError: if a backend is named and cannot be used here.
    """
    if wanted == TORCH:
        return SdpaAttention
    answer = first_offer(
        "the attention",
        lambda backend: backend.attention(needs),
        lambda offered: disagreement(offered, needs, config),
        None if wanted == "auto" else wanted,
    )
    if not isinstance(answer, Declined):
        return answer
    if wanted != "auto":
        raise ConfigError(
            f"LLM: attention_backend={wanted!r} cannot be used here ({answer.reason}): leave it out"
        )
    if needs.device.type == "cuda":
        logger.warning("attention runs through torch (%s)", answer.reason)
    return SdpaAttention
