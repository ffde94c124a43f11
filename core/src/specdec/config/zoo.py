"""Access to `specdec-zoo`: its models by name, and its drafts for `"model": "zoo"`."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from specdec.config.speculative import PLACE
from specdec.errors import ConfigError
from specdec.target_facts import TargetFacts

if TYPE_CHECKING:
    from specdec.registry.catalogue import KnownMethod

ZOO = "zoo"
"""The value of `model` for the zoo's small target, or for the zoo's artefact of a method."""
PACKAGED = ("smollm2",)
"""Values of `model` for published models, which the zoo finds in separately installed packages."""


def zoo_draft(method: str, known: KnownMethod | None, target: TargetFacts | None = None) -> str:
    """Return the directory of the zoo's artefact for a method and a target.

    Args:
        method: the method's name; also the artefact's name for a method that core does not know.
        known: core's entry for the method.
        target: the target that the artefact is for; None for the zoo's small target.

    Raises:
        ConfigError: if the zoo is not installed or has no such artefact.
    """
    artefact = method if known is None else known.zoo
    if artefact is None:
        raise ConfigError(f"{PLACE}: method {method!r} takes no draft from the zoo: leave 'model' out")
    zoo = _zoo("'model': 'zoo'")
    try:
        return str(zoo.draft(artefact, {} if target is None else target.hf_config))
    except (LookupError, ValueError, OSError) as error:
        raise ConfigError(f"{PLACE}: 'model': 'zoo': {error}") from None


def zoo_path(artefact: str) -> str:
    """Return the directory of a zoo artefact, such as `target`.

    Raises:
        ConfigError: if the zoo is not installed or has no such artefact.
    """
    zoo = _zoo("model 'zoo'")
    try:
        return str(zoo.path(artefact))
    except (LookupError, ValueError, OSError) as error:
        raise ConfigError(f"the zoo has no {artefact!r} ({error})") from None


def has_zoo() -> bool:
    """Return whether the zoo is installed."""
    return sys.modules.get("specdec_zoo") is not None or find_spec("specdec_zoo") is not None


@cache
def zoo_artefacts() -> str | None:
    """Return the folder of the zoo's artefacts, whose links to each other are its own; None if it is not installed."""
    found = find_spec("specdec_zoo")
    return (
        None
        if found is None or found.origin is None
        else os.path.realpath(Path(found.origin).parent / "artefacts")
    )


def packaged_model(name: str) -> Path:
    """Return the GGUF file of a published model that is installed as a package.

    Args:
        name: one of `PACKAGED`.

    Raises:
        ConfigError: if the zoo or the model's package is not installed; includes the install command.
    """
    zoo = _zoo(f"model {name!r}")
    try:
        return Path(zoo.path(name))
    except (LookupError, ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


def _zoo(what: str) -> ModuleType:
    try:
        return importlib.import_module("specdec_zoo")
    except ImportError as error:
        raise ConfigError(f"{what} needs the zoo: pip install specdec-zoo ({error})") from None
