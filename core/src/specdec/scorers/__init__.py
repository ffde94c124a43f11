"""Scorers that come with core."""
