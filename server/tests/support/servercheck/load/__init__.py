"""Hostile and honest clients at one server: `python -m servercheck.load --help`."""
