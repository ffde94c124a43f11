"""Compiled loops of the CPU."""
