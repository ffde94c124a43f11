"""What is wrong with a `speculative_config` at first sight, told before torch is imported or a model loaded."""

from __future__ import annotations

from specdec import registry
from specdec.config.source import read_mapping
from specdec.registry import Group
from specdec.registry.catalogue import known_method
from specdec.registry.class_path import is_class_path


def check_first(value: object) -> None:
    """Raise where a configuration cannot be read, or names a method that nobody has; the rest is checked when it is resolved.

    Args:
        value: as `LLM` takes it; None for no speculation.

    Raises:
        ConfigError: for text or a file that holds no mapping.
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
