"""Writes the skeleton of a plugin package: metadata, a plugin that works, and its tests."""

from specdec.scaffold.kinds import KINDS, Kind
from specdec.scaffold.names import PluginNames, plugin_names
from specdec.scaffold.write import write_package

__all__ = ["KINDS", "Kind", "PluginNames", "plugin_names", "write_package"]
