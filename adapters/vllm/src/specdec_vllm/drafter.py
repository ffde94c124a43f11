"""The class that vLLM's `speculative_config` names for specdec's proposers."""

from __future__ import annotations

from typing import Any

from specdec import ConfigError


class Proposer:
    """The `model` of `speculative_config={"method": "custom_class", "model": "specdec_vllm.Proposer", ...}`.

    vLLM's V1 model runner creates one and calls it for drafts once per step. Our workers draft in its place, because vLLM does
    not pass enough information to such a class. Under any other worker it stops the engine's start with an error.
    """

    def __init__(self, vllm_config: Any) -> None:
        worker = vllm_config.parallel_config.worker_cls
        name = worker if isinstance(worker, str) else f"{worker.__module__}.{worker.__qualname__}"
        if not name.startswith("specdec_vllm."):
            raise ConfigError(
                "specdec_vllm.Proposer needs one of our workers, which vLLM's plugin 'specdec' chooses where additional_config "
                "has 'specdec': add that, and 'specdec' to VLLM_PLUGINS if that is set"
            )

    def load_model(self, target: Any) -> None:
        """Do nothing: the worker loads the proposer after the target."""

    def propose(self, *_: Any, **__: Any) -> list[list[int]]:
        """Raise, because the worker replaces this function on the runner."""
        raise ConfigError("specdec_vllm.Proposer was asked for drafts: the worker is not bound to the runner")
