"""Checkpoints in the speculators format: the draft's `config.json` names method, k and target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.config.checkpoint import Checkpoint
from specdec.config.hub import HUB_ID
from specdec.config.model_name import local_gguf
from specdec.config.zoo import PACKAGED, ZOO
from specdec.errors import ConfigError
from specdec.registry.catalogue import known_methods

FORMAT_KEY = "speculators_config"


@dataclass(frozen=True)
class SpeculatorsFile:
    """The contents of a `config.json` with `speculators_config`."""

    method: str
    num_speculative_tokens: int
    target: str | None
    """Directory or hub id of the model the draft was trained for."""
    implied: Mapping[str, Any]
    """Common keys implied by the speculator type."""


def read_speculators(checkpoint: Checkpoint) -> SpeculatorsFile | None:
    """Read a checkpoint in the speculators format; return None for another format.

    Raises:
        ConfigError: if the file is invalid or its type is unknown.
    """
    config = checkpoint.config
    if config is None or FORMAT_KEY not in config:
        return None
    kind = config.get("speculators_model_type")
    types = {name: method for method in known_methods().values() for name in method.speculators_types}
    if not isinstance(kind, str) or kind not in types:
        raise ConfigError(
            f"{checkpoint.model}: unknown speculators_model_type {kind!r}; known: {', '.join(sorted(types))}"
        )
    try:
        described = config[FORMAT_KEY]
        tokens = described["proposal_methods"][0]["speculative_tokens"]
        target = described["verifier"]["name_or_path"]
        if type(tokens) is not int or tokens < 1 or not isinstance(target, str | None):
            raise TypeError(f"{tokens!r} and {target!r} are none")
    except (KeyError, IndexError, TypeError) as error:
        raise ConfigError(
            f"{checkpoint.model}: {FORMAT_KEY} of its config.json needs "
            "proposal_methods[0].speculative_tokens and verifier.name_or_path "
            f"({type(error).__name__}: {error})"
        ) from None
    method = types[kind]
    return SpeculatorsFile(method.name, tokens, target, method.speculators_types[kind])


def target_of(model: str, revision: str | None = None) -> tuple[str, dict[str, Any]] | None:
    """Return the target and `speculative_config` of a draft given as the model to serve; None for other models.

    With this `LLM(model="path/of/speculator")` serves the target that the speculator names.

    Raises:
        ConfigError: if the file is invalid or names no target.
    """
    is_whole_model = model in (ZOO, *PACKAGED) or local_gguf(model) is not None
    found = None if is_whole_model else read_speculators(Checkpoint(model, revision))
    if found is None:
        return None
    if not found.target:
        raise ConfigError(
            f"{model}: its config.json names no verifier; give the target as model and this one as draft"
        )
    if HUB_ID.fullmatch(found.target) is None or os.path.exists(found.target):
        raise ConfigError(
            f"{model}: verifier.name_or_path of its config.json is {found.target!r}, which is no hub id and leads out of its "
            "folder: if that is the target that you want, give it as model, and this one as 'model' of speculative_config"
        )
    keys = {"method": found.method, "model": model, "num_speculative_tokens": found.num_speculative_tokens}
    return found.target, {**keys, **found.implied, **({"revision": revision} if revision else {})}
