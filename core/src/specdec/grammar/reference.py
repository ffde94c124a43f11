"""References within a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def is_remote(reference: object) -> bool:
    """Return whether a `$ref` points outside its own schema, judged by its form."""
    return not (isinstance(reference, str) and (reference == "#" or reference.startswith("#/")))


def is_walkable(reference: str) -> bool:
    """Return whether xgrammar finds the same as `resolved`: it neither decodes names nor knows empty ones."""
    return not (set("~%") & set(reference)) and "" not in reference.split("/")[1:]


def resolved(root: Any, reference: object) -> Any:
    """Return the target of a `$ref`; None if it does not exist."""
    if not isinstance(reference, str) or is_remote(reference):
        return None
    found = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        else:
            return None
    return found
