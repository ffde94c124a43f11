"""The zoo's drafts, for `"model": "zoo"`."""

from __future__ import annotations

import importlib

from specdec.config.speculative import PLACE
from specdec.errors import ConfigError
from specdec.registry.catalogue import KnownMethod

ZOO = "zoo"
"""The value of `model` that means the zoo's artefact."""


def zoo_draft(method: str, known: KnownMethod | None) -> str:
    """Return the directory of the zoo's artefact for a method.

    Args:
        method: the method's name; also the artefact's, for a method that core knows nothing of.
        known: what core knows of the method.

    Raises:
        ConfigError: if the zoo is not installed or has none.
    """
    artefact = method if known is None else known.zoo
    if artefact is None:
        raise ConfigError(f"{PLACE}: method {method!r} takes no draft from the zoo: leave 'model' out")
    return zoo_path(artefact)


def zoo_path(artefact: str) -> str:
    """Return the directory of one of the zoo's artefacts, `target` among them.

    Raises:
        ConfigError: if the zoo is not installed or has none.
    """
    try:
        zoo = importlib.import_module("specdec_zoo")
    except ImportError as error:
        raise ConfigError(f"'model': 'zoo' needs the zoo: pip install specdec-zoo ({error})") from None
    try:
        return str(zoo.path(artefact))
    except (LookupError, ValueError, OSError) as error:
        raise ConfigError(f"the zoo has no {artefact!r} ({error})") from None
