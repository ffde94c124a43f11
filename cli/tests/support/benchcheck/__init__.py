"""Engines of known speed for tests of searches."""
