"""Classes under test, where the configuration finds them: it takes the path of a class, not the class itself."""

from __future__ import annotations

import sys


def path_of(subject: type) -> str:
    """Return a path that leads to a class wherever it was defined, also inside a function or a test module."""
    module = sys.modules[__name__]
    name = f"{subject.__name__}_{id(subject):x}"
    # A class stays for good: its id must never belong to another one.
    setattr(module, name, subject)
    return f"{__name__}.{name}"
