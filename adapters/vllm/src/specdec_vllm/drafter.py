"""The class that vLLM's `speculative_config` names for specdec's proposers."""

from __future__ import annotations

from typing import Any

from specdec import ConfigError


class Proposer:
    """The `model` of `speculative_config={"method": "custom_class", "model": "specdec_vllm.Proposer", ...}`.

    vLLM makes one and asks it for drafts once a step. `specdec_vllm.CPUWorker` and `GPUWorker` draft in its place, since what
    vLLM tells a class is not enough for it; under any other worker it ends the start of the engine with a sentence.
    """

    def __init__(self, vllm_config: Any) -> None:
        worker = vllm_config.parallel_config.worker_cls
        name = worker if isinstance(worker, str) else f"{worker.__module__}.{worker.__qualname__}"
        if not name.startswith("specdec_vllm."):
            raise ConfigError(
                "specdec_vllm.Proposer needs one of our workers: add --worker-cls specdec_vllm.CPUWorker, or "
                "specdec_vllm.GPUWorker on a GPU"
            )

    def load_model(self, target: Any) -> None:
        """Do nothing: the worker loads the proposer when the target is there."""

    def propose(self, *_: Any, **__: Any) -> list[list[int]]:
        """Draft nothing; the worker has put its own function in the runner's place."""
        raise ConfigError("specdec_vllm.Proposer was asked for drafts: the worker is not bound to the runner")
