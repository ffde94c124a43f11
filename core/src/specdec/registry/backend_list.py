"""Makes the backends of this process, in the order they are asked."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from specdec.errors import PluginError
from specdec.registry.plugin_info import Group

if TYPE_CHECKING:
    from specdec.interfaces import Backend
    from specdec.registry.registry import Registry

VARIABLE = "SPECDEC_BACKENDS"
"""Environment variable with the names of the backends to use, separated by commas; empty runs core alone."""

logger = logging.getLogger("specdec")


def why_none(registry: Registry) -> str:
    """Return a clause that says why no backend serves, and the remedy."""
    chosen = os.environ.get(VARIABLE)
    installed = {info.name for info in registry.installed(Group.BACKENDS)}
    left_out = set() if chosen is None else installed - set(_names(chosen))
    if left_out:
        return f"{VARIABLE}={chosen} leaves out {', '.join(sorted(left_out))}: unset it"
    return "no backend for this device is installed: pip install specdec-kernels"


def make_backends(registry: Registry, chosen: str | None) -> tuple[Backend, ...]:
    """Return the installed backends, or those that `chosen` names; one that cannot be loaded is left out, with a warning.

    Args:
        registry: finds them.
        chosen: value of `SPECDEC_BACKENDS`; None if it is not set.

    Raises:
        PluginError: if `chosen` names a backend that is not installed or cannot be loaded.
    """
    if chosen is None:
        names = [info.name for info in registry.installed(Group.BACKENDS) if registry.may_load(info)]
    else:
        names = _names(chosen)
    made: list[Backend] = []
    for name in names:
        try:
            made.append(registry.backend(name)())
        except PluginError as error:
            if chosen is not None:
                raise
            logger.warning("%s; it is left out", error)
    return tuple(sorted(made, key=lambda backend: backend.order))


def _names(chosen: str) -> list[str]:
    return [name.strip() for name in chosen.split(",") if name.strip()]
