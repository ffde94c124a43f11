"""The interface of attention backends, and how a runner's backend is chosen."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import torch

from specdec.errors import ConfigError
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PackedBatch

logger = logging.getLogger("specdec")

ATTENTION_BACKENDS = ("auto", "sdpa", "triton")
"""Allowed values of the option `attention_backend`."""


class AttentionBackend(Protocol):
    """Attention over a packed batch on one cache. One instance serves one model."""

    def attend(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write keys and values to the cache and attend.

        Args:
            layer: index of the layer.
            batch: the packed pass.
            query: `[T, H, Dk]`.
            key: `[T, Hkv, Dk]`.
            value: `[T, Hkv, Dv]`.
            scaling: factor on the scores.
            window: sliding window: the number of positions a row attends to, itself included; None means all.
            softcap: scores become `softcap * tanh(scores / softcap)`.
            sinks: `[H]` attention sinks: logits that take part in the softmax and carry no value.

        Returns:
            `[T, H, Dv]`.
        """


BackendFactory = Callable[[KVCache, int], AttentionBackend]
"""Makes a backend from a cache and the maximum sequence length, in tokens."""


def choose_backend(
    wanted: str, device: torch.device, disagreement: Callable[[], str | None] = lambda: None
) -> str:
    """Return `sdpa` or `triton` for a value of the option `attention_backend` and the device of the model.

    Args:
        wanted: value of the option.
        device: where the model runs.
        disagreement: returns what is wrong with the kernels on this device, or None. Called only if the
            kernels could be used.

    Raises:
        ConfigError: if `triton` is requested but not available here.
    """
    if wanted == "sdpa" or (wanted == "auto" and device.type != "cuda"):
        return "sdpa"
    missing = missing_kernels()
    if wanted == "auto":
        wrong = missing or _wrong(disagreement)
        if wrong is not None:
            logger.warning("attention runs through torch: %s", wrong)
        return "sdpa" if wrong is not None else "triton"
    if missing is not None:
        raise ConfigError(f"LLM: attention_backend='triton': {missing}")
    if not runs_kernels(device):
        raise ConfigError(
            f"LLM: attention_backend='triton' needs a CUDA device, and the model is on {str(device)!r}: use 'sdpa', or set "
            "TRITON_INTERPRET=1 to run the kernels in Triton's interpreter, for tests"
        )
    wrong = _wrong(disagreement)
    if wrong is not None:
        raise ConfigError(f"LLM: attention_backend='triton': {wrong}: use 'sdpa'")
    return "triton"


def _wrong(disagreement: Callable[[], str | None]) -> str | None:
    """Return the result of the kernel check as a sentence, or None if the kernels are correct."""
    found = disagreement()
    return (
        None
        if found is None
        else f"attention by the kernels of specdec-kernels fails on this device: {found}"
    )


def missing_kernels() -> str | None:
    """Return which package of the Triton kernels is missing and how to install it; None if none is missing."""
    for module, package in (("specdec_kernels", "specdec-kernels"), ("triton", "triton")):
        if find_spec(module) is None:
            return f"{package} is not installed: pip install 'specdec-core[triton]'"
    return None


def runs_kernels(device: torch.device) -> bool:
    """Return whether Triton kernels run on a device, or in Triton's interpreter."""
    return device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


def backend_factory(name: str, *, is_invariant: bool = False) -> BackendFactory:
    """Return the factory for a backend name returned by `choose_backend`.

    Args:
        name: `sdpa` or `triton`.
        is_invariant: whether results must be batch-invariant: bit-identical whatever else is in the batch. Used
            with `triton` only.
    """
    if name == "triton":
        from specdec.runner.triton_backend import TritonBackend  # imports the optional kernels

        return lambda cache, max_context: TritonBackend(cache, max_context, is_invariant=is_invariant)
    from specdec.runner.sdpa import SdpaBackend

    return SdpaBackend
