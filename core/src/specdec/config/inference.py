"""Infers the method if the user named none, and checks the name if they did.

The order is vLLM's, with two differences: a given method is never replaced by another one, and the
contents of a checkpoint take precedence over the spelling of its path.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from specdec.config.checkpoint import Checkpoint
from specdec.config.notices import deprecated, notice
from specdec.config.speculative import PLACE, SpeculativeConfig
from specdec.config.speculators import read_speculators
from specdec.config.zoo import ZOO, zoo_draft
from specdec.errors import ConfigError
from specdec.registry.catalogue import KnownMethod, known_methods
from specdec.registry.class_path import is_class_path
from specdec.target_facts import TargetFacts


@dataclass(frozen=True)
class Inferred:
    """The inferred method and the facts found while inferring it."""

    method: str
    known: KnownMethod | None
    """Core's entry for the method; None for a third-party method."""
    model: str | None
    """The draft: `model`, unless `model` only named the method."""
    num_speculative_tokens: int | None = None
    """k, if a checkpoint in the speculators format states it."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """Common keys that the checkpoint implies."""


def infer_method(config: SpeculativeConfig, target: TargetFacts | None = None) -> Inferred:
    """Return the method of a configuration.

    Args:
        config: the common keys; `model` is a directory, a hub id, `zoo` or another way of naming the method.
        target: the target that zoo drafts are chosen for; None for the zoo's own target.

    Raises:
        ConfigError: if the method cannot be inferred, or if it needs a model and none is given.
    """
    method, model = config.method, config.model
    if method is None:
        named = _named_by_model(model)
        if named is None:
            return _from_checkpoint(config)
        method, model = named
    known = _known_under_current_name(method)
    if model == ZOO:
        model = zoo_draft(method, known, target)
    if known is None:
        return Inferred(method, None, model)
    if model in (*known.model_names, *known.old_model_names) or (
        known.draft in ("none", "methods") and model == known.name
    ):
        model = None
    if known.draft in ("none", "methods") and model is not None:
        raise ConfigError(
            f"{PLACE}: 'model' = {model!r}: method {known.name!r} drafts without a model, leave it out"
        )
    if known.draft in ("model", "head", "class") and model is None:
        what = "the import path of a class" if known.draft == "class" else "a draft checkpoint"
        raise ConfigError(f"{PLACE}: method {known.name!r} needs {what} as 'model'")
    if model is None or known.draft not in ("model", "head", "target") or not Checkpoint(model).is_directory:
        return Inferred(known.name, known, model)
    return _with_checkpoint(known, Checkpoint(model, config.revision))


def _named_by_model(model: str | None) -> tuple[str, str | None] | None:
    """Return the method that `model` names by itself, and the remaining model."""
    if model is None:
        return None
    methods = known_methods().values()
    if is_class_path(model) and not os.path.exists(model):
        return next(method.name for method in methods if method.draft == "class"), model
    for method in methods:
        if model in method.old_model_names:
            deprecated(f"{PLACE}:{model}", f"{PLACE}: 'model': {model!r} is now 'method': {method.name!r}")
        if model in (*method.model_names, *method.old_model_names):
            return method.name, None
    return None


def _known_under_current_name(method: str) -> KnownMethod | None:
    for known in known_methods().values():
        if method in known.old_names:
            deprecated(f"{PLACE}:{method}", f"{PLACE}: method {method!r} is now called {known.name!r}")
        if method in (known.name, *known.aliases, *known.old_names):
            return known
    return None


def _from_checkpoint(config: SpeculativeConfig) -> Inferred:
    model = config.model
    if model is None:
        raise ConfigError(
            f"{PLACE}: needs a 'method' or a 'model'; methods: {', '.join(sorted(known_methods()))}"
        )
    if model == ZOO:
        raise ConfigError(f"{PLACE}: 'model': 'zoo' needs a 'method' beside it: the zoo has a draft for each")
    checkpoint = Checkpoint(model, config.revision)
    found = _recognised(checkpoint) or _spelled(model)
    if found is None and checkpoint.config is None:
        raise ConfigError(
            f"{PLACE}: cannot tell the method of 'model': {checkpoint.problem}; give 'method' as well"
        )
    if found is None:
        found = next(method for method in known_methods().values() if method.is_fallback)
    return _with_checkpoint(found, checkpoint)


def _with_checkpoint(known: KnownMethod, checkpoint: Checkpoint) -> Inferred:
    speculators = read_speculators(checkpoint)
    if speculators is not None and speculators.method == known.name:
        return Inferred(
            known.name, known, checkpoint.model, speculators.num_speculative_tokens, speculators.implied
        )
    seen = _recognised(checkpoint)
    if seen is not None and seen.name != known.name and seen.draft == "head":
        notice(
            f"{PLACE}:{checkpoint.model}",
            f"{PLACE}: {checkpoint.model!r} looks like a checkpoint of method {seen.name!r}; "
            f"{known.name!r} is used as told",
        )
    return Inferred(known.name, known, checkpoint.model)


def _recognised(checkpoint: Checkpoint) -> KnownMethod | None:
    """Return the method inferred from a checkpoint's files: from its config first, then from its tensor names."""
    speculators = read_speculators(checkpoint)
    if speculators is not None:
        return known_methods()[speculators.method]
    config = checkpoint.config or {}
    methods = known_methods().values()
    architectures = checkpoint.architectures
    for method in methods:
        if any(fnmatchcase(name, pattern) for name in architectures for pattern in method.architectures):
            return method
    for method in methods:
        if config.get("model_type") in method.model_types or any(key in config for key in method.config_keys):
            return method
    names = checkpoint.tensor_files.keys()
    return next(
        (method for method in methods if any(_has(names, alternative) for alternative in method.tensors)),
        None,
    )


def _has(names: Collection[str], patterns: tuple[str, ...]) -> bool:
    return all(
        any(fnmatchcase(name, pattern.removeprefix("!")) for name in names) != pattern.startswith("!")
        for pattern in patterns
    )


def _spelled(model: str) -> KnownMethod | None:
    lowered = model.lower()
    return next(
        (method for method in known_methods().values() if any(part in lowered for part in method.spellings)),
        None,
    )
