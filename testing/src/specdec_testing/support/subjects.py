"""Makes classes under test importable by path, because the configuration takes a class path, not a class."""

from __future__ import annotations

import sys


def path_of(subject: type) -> str:
    """Return an import path for a class, even if it was defined in a function or a test module."""
    module = sys.modules[__name__]
    name = f"{subject.__name__}_{id(subject):x}"
    # The class is never removed, so its id cannot be reused by another class.
    setattr(module, name, subject)
    return f"{__name__}.{name}"
