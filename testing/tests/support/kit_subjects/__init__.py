"""Plugins for the tests of the kit: toys that keep every promise, and mutants of them that break one each."""
