"""Loads the draft models of proposers."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdec import EngineOptions
from specdec.config import resolve_name
from specdec.errors import ConfigError
from specdec_runtime.loading.causal import load_checkpoint
from specdec_runtime.loading.target import TargetLocation

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_draft(
    options: EngineOptions,
    target: TargetLocation,
    path: str,
    *,
    revision: str | None,
    dtype: str | torch.dtype,
    quantization: str | None,
) -> PreTrainedModel:
    """Load a draft model next to the target; see `TargetHandle.load_model`.

    Args:
        options: the engine's options.
        target: the target; if it is a `transformers` model and the draft is the same model, weights are shared.
        path: directory, hub id or GGUF file.
        revision: revision on a hub.
        dtype: `auto` for the target's dtype.
        quantization: method that the checkpoint must be quantised with.
    """
    wanted = target.dtype if dtype == "auto" else dtype
    path = resolve_name(path, revision=revision, dtype=wanted)
    is_same = _is_same(path, revision, options, target) and wanted in (target.dtype, str(target.dtype)[6:])
    if is_same and target.model is not None:
        model = alias(target.model)
    else:
        own = replace(options, dtype=wanted, revision=revision, device_map=None)
        model = load_checkpoint(path, own, target.device)
    held = getattr(model, "quantization_method", None)
    method = None if held is None else str(getattr(held, "value", held))
    if quantization is not None and quantization != method:
        raise ConfigError(
            f"speculative_config: 'quantization': {quantization!r} does not fit {path}, which is "
            + (
                f"quantised with {method!r}"
                if method
                else "not quantised: nothing is quantised on the fly, leave it out"
            )
        )
    return model


def _is_same(path: str, revision: str | None, options: EngineOptions, target: TargetLocation) -> bool:
    """Return whether a path refers to the target's own files."""
    if target.path is None:
        return False
    ours, theirs = Path(path), Path(target.path)
    if ours.is_dir() and theirs.is_dir():
        return ours.samefile(theirs)
    return path == target.path and revision == options.revision


def alias(model: PreTrainedModel) -> PreTrainedModel:
    """Return a second model over the same weights, whose modules may be replaced."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, dict(shared))
