"""Writes the skeleton of a plugin package: metadata, a plugin that works, and its tests."""

from specdec_testing.scaffold.kinds import KINDS, Kind
from specdec_testing.scaffold.names import PluginNames, plugin_names
from specdec_testing.scaffold.write import write_package

__all__ = ["KINDS", "Kind", "PluginNames", "plugin_names", "write_package"]
