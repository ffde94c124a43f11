"""Loads targets, and refuses those that cannot be served correctly."""
