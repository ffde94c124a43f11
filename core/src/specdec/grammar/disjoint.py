"""Checks that no value can satisfy two schemas of a `oneOf`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from specdec.grammar.reference import resolved

_MAX_STEPS = 16


def are_disjoint(schemas: object, root: Any) -> bool:
    """Return whether types, or values of a required property, distinguish all schemas.

    Args:
        schemas: the schemas of a `oneOf`.
        root: the enclosing schema, to resolve references.
    """
    if not isinstance(schemas, list):
        return False
    followed = [_followed(schema, root) for schema in schemas]
    if not all(isinstance(schema, Mapping) for schema in followed):
        return len(followed) < 2
    return all(_differ(one, other, root) for one, other in combinations(followed, 2))


def _followed(schema: Any, root: Any) -> Any:
    for _ in range(_MAX_STEPS):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        schema = resolved(root, schema["$ref"])
    return schema


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], root: Any) -> bool:
    values, types = (_values(one), _values(other)), (_types(one), _types(other))
    if all(values) and not values[0] & values[1]:
        return True
    if all(types) and not types[0] & types[1]:
        return True
    for name in set(one.get("required") or ()) & set(other.get("required") or ()):
        pair = [_followed((schema.get("properties") or {}).get(name), root) for schema in (one, other)]
        found = [_values(schema) if isinstance(schema, Mapping) else frozenset() for schema in pair]
        if all(found) and not found[0] & found[1]:
            return True
    return False


def _values(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the values that a schema lists, each as JSON; empty if it lists none."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum") or []
    whole = [int(value) if isinstance(value, float) and value.is_integer() else value for value in listed]
    return frozenset(json.dumps(value, sort_keys=True) for value in whole)


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    given = schema.get("type", "object" if "properties" in schema else ())
    found = {given} if isinstance(given, str) else set(given)
    return frozenset(found | ({"integer"} if "number" in found else set()))
