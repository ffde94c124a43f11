"""The errors specdec raises: for what its user can mend, and for an engine that is gone."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration, argument or sampling parameter that is wrong; the message names it and the remedy."""


class PluginError(RuntimeError):
    """A plugin that was asked for and cannot be used; the message names distribution, version and cause."""


class ModelError(ValueError):
    """A model that cannot be served right; the message says why and what would work."""


class EngineError(RuntimeError):
    """No engine runs any more: it was shut down, or it failed, which `__cause__` then says."""
