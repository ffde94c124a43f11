"""The entry point of vLLM's plugins: the workers of this package, where `additional_config` has our configuration."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any

from specdec import ConfigError
from specdec_vllm.settings import EXAMPLE, KEY, PROPOSER

logger = logging.getLogger("specdec")


def register() -> None:
    """Have vLLM's arguments choose our worker, and log where vLLM does.

    The entry point of `vllm.general_plugins`, called in each process.
    Only processes that make a configuration have imported vLLM's arguments; the others get the configuration.
    """
    _log_as_vllm()
    module = sys.modules.get("vllm.engine.arg_utils")
    if module is None or hasattr(module.EngineArgs.create_engine_config, "specdec"):
        return
    stock = module.EngineArgs.create_engine_config

    @wraps(stock)
    def create_engine_config(self: Any, *arguments: Any, **keys: Any) -> Any:
        choose_worker(self)
        return stock(self, *arguments, **keys)

    vars(create_engine_config)["specdec"] = register
    module.EngineArgs.create_engine_config = create_engine_config


def _log_as_vllm() -> None:
    """Give our logger the handlers and the level of vLLM's, unless vLLM or ours is set up otherwise."""
    theirs = logging.getLogger("vllm")
    is_ours_set_up = logger.handlers or logger.level != logging.NOTSET or not logger.propagate
    if theirs.handlers and not is_ours_set_up:
        logger.handlers, logger.propagate = [*theirs.handlers], theirs.propagate
        logger.setLevel(theirs.level)


def choose_worker(arguments: Any) -> None:
    """Set the worker, and with vLLM's V1 model runner the method, in vLLM's `EngineArgs` that have our configuration.

    Raises:
        ConfigError: for a method, a worker or a device that our configuration cannot go with.
    """
    additional = arguments.additional_config
    ours = additional.get(KEY) if isinstance(additional, Mapping) else None
    if ours is None:
        return
    theirs = arguments.speculative_config or {}
    method = theirs.get("method")
    if method == "ngram_gpu":
        why = why_v1(arguments, ours if isinstance(ours, Mapping) else {})
        if why is not None:
            logger.warning(
                "specdec drafts in vLLM's V1 model runner, without asynchronous scheduling: %s", why
            )
            kept = {name: value for name, value in theirs.items() if not name.startswith("prompt_lookup")}
            arguments.speculative_config = {**kept, "method": "custom_class", "model": PROPOSER}
    elif method != "custom_class" or theirs.get("model") != PROPOSER:
        raise ConfigError(f"additional_config[{KEY!r}] does not go with vLLM's method {method!r}: {EXAMPLE}")
    if arguments.worker_cls == "auto":
        arguments.worker_cls = worker_name()
    elif not str(arguments.worker_cls).startswith("specdec_vllm."):
        raise ConfigError(
            f"additional_config[{KEY!r}] needs a worker of specdec_vllm, not {arguments.worker_cls}: leave out --worker-cls"
        )


def why_v1(arguments: Any, ours: Mapping[str, Any]) -> str | None:
    """Return why vLLM's V1 model runner is used; None for V2."""
    from vllm import envs
    from vllm.triton_utils import HAS_TRITON

    if envs.VLLM_USE_V2_MODEL_RUNNER is False:
        return "VLLM_USE_V2_MODEL_RUNNER is 0"
    if envs.VLLM_USE_V2_MODEL_RUNNER is None and not HAS_TRITON:
        return "V2 needs Triton"
    if ours.get("adaptive"):
        return "'adaptive' shortens drafts, and V2 verifies as many tokens in every step"
    if arguments.pipeline_parallel_size > 1:
        return "drafts in V2 do not reach the other stages of a pipeline"
    return None


def worker_name() -> str:
    """Return our worker for this platform.

    Raises:
        ConfigError: if there is none.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return "specdec_vllm.CPUWorker"
    if current_platform.is_cuda_alike():
        return "specdec_vllm.GPUWorker"
    raise ConfigError(
        f"specdec_vllm has no worker for {current_platform.device_name}, only for CPUs and GPUs"
    )
