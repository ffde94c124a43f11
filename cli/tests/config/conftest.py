"""Stand-ins for the published methods, and checkpoints that look like theirs."""

from speccheck.published import checkpoint, plugins

__all__ = ["checkpoint", "plugins"]
