"""Converts vLLM's sampling parameters for specdec proposers."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from specdec import ConfigError, SamplingParams

logger = logging.getLogger("specdec")

LIMIT_KEY = "specdec_num_speculative_tokens"
"""The key of `vllm_xargs` that lowers the number of drafted tokens for one request; 0 turns drafting off."""
MIN_TEMPERATURE = 1e-5
"""Below this temperature vLLM is greedy."""

_said: set[str] = set()


def params_of(theirs: Any, *, is_noise_known: bool) -> SamplingParams:
    """Return a request's sampling parameters for a proposer.

    Args:
        theirs: vLLM's sampling parameters.
        is_noise_known: whether tokens are chosen with noise that proposers can compute; otherwise greedy drafts are best.
    """
    is_greedy = theirs.temperature < MIN_TEMPERATURE or not is_noise_known
    known: dict[str, Any] = {
        "temperature": 0.0 if is_greedy else theirs.temperature,
        "top_p": theirs.top_p,
        "top_k": max(0, theirs.top_k),
        "max_tokens": theirs.max_tokens,
        "min_tokens": min(theirs.min_tokens, theirs.max_tokens or theirs.min_tokens),
        "ignore_eos": theirs.ignore_eos,
        "speculative": _limit(theirs.extra_args or {}),
    }
    try:
        return SamplingParams(**known)
    except ConfigError as error:  # not fatal: the proposer gets fewer parameters
        _warn_once(str(error))
        return SamplingParams(temperature=known["temperature"], max_tokens=known["max_tokens"])


def noise_seed(engine_seed: int | None, request_id: str) -> int:
    """Return the noise seed of a request without a seed; the same on every rank."""
    digest = hashlib.blake2b(f"{engine_seed}\0{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _limit(extra: Mapping[str, Any]) -> Mapping[str, int] | None:
    unknown = [key for key in extra if key.startswith("specdec_") and key != LIMIT_KEY]
    if unknown:
        _warn_once(f"vllm_xargs: {unknown[0]!r} is not known: use {LIMIT_KEY!r}")
    limit = extra.get(LIMIT_KEY)
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        _warn_once(f"vllm_xargs: {LIMIT_KEY}={limit!r} must be an integer of at least 0; it is ignored")
        return None
    return {"num_speculative_tokens": limit}


def _warn_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        logger.warning("%s", message)
