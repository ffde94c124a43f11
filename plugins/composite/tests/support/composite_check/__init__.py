"""Composites of scripted members, for tests of policies."""

from composite_check.scripted import Scripted, batch_of, composite_of, members_of, scripted

__all__ = ["Scripted", "batch_of", "composite_of", "members_of", "scripted"]
