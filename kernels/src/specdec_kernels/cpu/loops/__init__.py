"""Compiled loops of the host path."""
