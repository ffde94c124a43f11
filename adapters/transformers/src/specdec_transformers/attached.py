"""The engine of a model, stored on the model: created at the first call, freed with the model."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from specdec import ConfigError, EngineOptions
from specdec.assembly import BuiltEngine
from specdec.config import notice, read_mapping
from specdec.frontend import InputProcessor, build
from specdec.metrics import Metric
from specdec_runtime.loading import load_target
from specdec_runtime.runner import ATTENTION_NAME
from specdec_transformers.weights import has_hooks, weights_state

logger = logging.getLogger("specdec")

_ATTRIBUTE = "_specdec"
_OPTIONS = {field.name for field in fields(EngineOptions)} - {
    "model",
    "gguf_file",
    "revision",
    "seed",
    "dtype",
    "device",
}


@dataclass(frozen=True)
class Session:
    """An engine for one model."""

    built: BuiltEngine
    input_processor: InputProcessor

    @property
    def num_speculative_tokens(self) -> int:
        """The most tokens drafted in one step for one row."""
        speculation = self.built.speculation
        return 0 if speculation is None else speculation.config.num_speculative_tokens or 0


class Attached:
    """The engine attached to a model, and the state it was made from. A copy of the model starts without an engine."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Session | None = None
        self.made_from: tuple[object, ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> Attached:
        return Attached()

    def __reduce__(self) -> tuple[type[Attached], tuple[()]]:
        return Attached, ()


@contextmanager
def session_of(
    model: PreTrainedModel, speculative_config: Any, options: Mapping[str, Any]
) -> Iterator[Session]:
    """Provide the engine of a model; created unless the last call had the same configuration and weights.

    Inside the context the model uses the engine's attention; its own is restored afterwards.

    Args:
        model: the caller's model.
        speculative_config: in any form that `LLM` accepts.
        options: engine arguments of `LLM`.

    Raises:
        ConfigError: for an invalid configuration or option, or if another call on this model is running.
        PluginError: for a method that cannot be loaded.
        ModelError: for a model that cannot be served correctly.
    """
    attached = _attached(model)
    if not attached.lock.acquire(blocking=False):
        raise ConfigError(
            "generate: another call on this model is running: its engine takes one call at a time; give several prompts in one "
            "call, or use specdec.AsyncLLM"
        )
    try:
        with _as_it_was(model):
            session = _current(attached, model, speculative_config, options)
            yield session
    finally:
        attached.lock.release()


def release(model: PreTrainedModel) -> None:
    """Drop the engine of a model, with its cache and the copies of some weights in fused layers."""
    vars(model).pop(_ATTRIBUTE, None)


def metrics(model: PreTrainedModel) -> list[Metric]:
    """Return the counters of a model's engine, like `LLM.get_metrics`; a new engine starts with new counters.

    Raises:
        ConfigError: if no call has created an engine.
    """
    attached = vars(model).get(_ATTRIBUTE)
    if not isinstance(attached, Attached) or attached.session is None:
        raise ConfigError("metrics: this model has no engine yet: call generate first")
    return attached.session.built.metrics()


def _attached(model: PreTrainedModel) -> Attached:
    found = vars(model).get(_ATTRIBUTE)
    if not isinstance(found, Attached):
        found = vars(model)[_ATTRIBUTE] = Attached()
    return found


def _current(
    attached: Attached, model: PreTrainedModel, speculative_config: Any, options: Mapping[str, Any]
) -> Session:
    given = None if speculative_config is None else read_mapping(speculative_config)  # reads a file anew
    asked = (_key(given), _key(options), has_hooks(model))
    state = weights_state(model)
    if attached.session is not None and attached.made_from == (*asked, state):
        model.set_attn_implementation(ATTENTION_NAME)  # as `ModelRunner` did when the engine was created
        return attached.session
    if attached.session is not None and attached.made_from[:-1] == asked:
        logger.info("the weights have changed since the last call: the engine is made anew")
    attached.session, attached.made_from = None, ()
    attached.session = _make(model, given, options)
    attached.made_from = (*asked, weights_state(model))
    return attached.session


def _make(model: PreTrainedModel, speculative_config: Any, options: Mapping[str, Any]) -> Session:
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ConfigError(
            f"generate: engine_options has no {unknown[0]!r}; it takes {', '.join(sorted(_OPTIONS))}, as LLM does"
        )
    known: dict[str, Any] = {"enable_prefix_caching": True, **options}
    name = model.name_or_path
    folder = name if name and os.path.isdir(name) else None
    if has_hooks(model):
        notice(
            "generate.hooks",
            "generate: modules of the model have forward hooks, which only the model's own forward calls and which may do "
            "something else in the next call: it runs instead of fused layers, on the host two to four times slower, and "
            "prompts that begin alike are computed anew; take the hooks out if they are not meant for generation",
        )
        known["enforce_eager"], known["enable_prefix_caching"] = True, False
    if "tokenizer" not in known and folder is not None and any(Path(folder).glob("tokenizer*")):
        known["tokenizer"] = folder
    if (
        model.device.type == "cuda"
        and "kv_cache_memory_bytes" not in known
        and "gpu_memory_utilization" not in known
    ):
        # As on the CPU, leave memory for the caller's program.
        known["kv_cache_memory_bytes"] = torch.cuda.mem_get_info(model.device)[0] // 4
    was_training = model.training
    try:
        loaded = replace(load_target(EngineOptions(model=model, **known)), path=folder)
        known.pop("tokenizer", None)
        built, _ = build(loaded, speculative_config, known)
    finally:
        model.train(was_training)
    return Session(built, InputProcessor(built.info, None, None, speculation=built.speculation))


@contextmanager
def _as_it_was(model: PreTrainedModel) -> Iterator[None]:
    """Restore the model's attention implementation and torch's number of threads on exit."""
    own, num_threads = _implementations(model), torch.get_num_threads()
    try:
        yield
    finally:
        if _implementations(model) != own:
            model.set_attn_implementation(own)
        if torch.get_num_threads() != num_threads:  # numba's OpenMP layer sets it globally
            torch.set_num_threads(num_threads)


def _implementations(model: PreTrainedModel) -> dict[str, str]:
    config = model.config
    parts = {name: getattr(config, name, None) for name in config.sub_configs}
    return {"": config._attn_implementation} | {
        name: part._attn_implementation for name, part in parts.items() if part is not None
    }


def _key(value: Any) -> object:
    """Return a key that is equal for equal configurations."""
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except TypeError:
        return deepcopy(value)
