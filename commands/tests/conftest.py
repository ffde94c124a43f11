"""A tiny model for commands, and ways to look at what they print."""

from speccheck.commands import dataset, is_never_slow, tiny_model

__all__ = ["dataset", "is_never_slow", "tiny_model"]
