"""Early checks of a `speculative_config`, made before torch is imported or a model is loaded."""

from __future__ import annotations

from specdec import registry
from specdec.config.source import read_mapping
from specdec.registry import Group
from specdec.registry.catalogue import known_method
from specdec.registry.class_path import is_class_path


def check_first(value: object) -> None:
    """Raise if a configuration cannot be read or names a method that is not installed.

    Everything else is checked when the configuration is resolved.

    Args:
        value: in any form that `LLM` accepts; None for no speculation.

    Raises:
        ConfigError: for text or a file that does not hold a mapping.
        PluginError: for a method that is not installed.
    """
    if value is None:
        return
    method = read_mapping(value).get("method")
    if not isinstance(method, str) or is_class_path(method):
        return
    known = known_method(method)
    if known is None:
        registry.find(Group.PROPOSERS, method)
    elif known.draft != "class":
        registry.find(Group.PROPOSERS, known.name)
