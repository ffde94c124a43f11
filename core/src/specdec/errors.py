"""The errors that specdec raises: those that the user can fix, and a stopped engine."""

from __future__ import annotations


class ConfigError(ValueError):
    """Invalid configuration, argument or sampling parameter; the message names it and the remedy."""


class PluginError(RuntimeError):
    """A requested plugin cannot be used; the message names distribution, version and cause."""


class ModelError(ValueError):
    """A model cannot be served correctly; the message says why and what would work."""


class EngineError(RuntimeError):
    """The engine has stopped: it was shut down, or it failed (`__cause__` is the failure)."""
