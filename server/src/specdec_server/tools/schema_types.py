"""Converts text values to the types of a JSON schema, for formats that write arguments without quotes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from specdec_server.tools.json_writing import read_json, written

JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
"""JSON Schema names of Python types."""
_OLD_NAMES = {
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "int": "integer", "uint": "integer", "long": "integer", "short": "integer", "unsigned": "integer",
    "float": "number", "double": "number", "num": "number", "bool": "boolean", "binary": "boolean",
    "list": "array", "arr": "array", "tuple": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Type names outside JSON schema that some tools use."""


def types_of(schema: object, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Return the types that a schema allows; empty if it does not specify any.

    Args:
        schema: of one value.
        root: the schema of all arguments, for resolving references.
        depth: nesting depth of references and alternatives so far.
    """
    if not isinstance(schema, Mapping) or depth > 16:
        return frozenset()
    given = schema.get("type")
    names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    found = {_OLD_NAMES.get(str(name).lower(), str(name).lower()) for name in names}
    if not found:
        values = _listed(schema.get("enum")) + ([schema["const"]] if "const" in schema else [])
        found = {JSON_TYPES[type(value)] for value in values if type(value) in JSON_TYPES}
    for key in ("anyOf", "oneOf", "allOf"):
        for choice in _listed(schema.get(key)):
            found |= types_of(choice, root, depth + 1)
    if "$ref" in schema:
        found |= types_of(resolved(root, schema["$ref"]), root, depth + 1)
    if not found and "properties" in schema:
        found = {"object"}
    return frozenset(found)


def resolved(root: Any, reference: object) -> Any:
    """Return the target of a `$ref` within a schema; None if it does not exist."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _listed(given: object) -> list[Any]:
    return given if isinstance(given, list) else []


def value_of(text: str, types: frozenset[str]) -> Any:
    """Return the value of text; the text itself if no type fits or none is known."""
    if text.strip().lower() in ("null", "none") and "null" in types:
        return None
    if "boolean" in types and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    for name, kinds in (("integer", int), ("number", (int, float)), ("object", dict), ("array", list)):
        if name in types:
            value = _literal(text)
            if isinstance(value, kinds) and not isinstance(value, bool):
                return value
            if name == "integer" and isinstance(value, float) and value.is_integer():
                return int(value)
    return text


def _literal(text: str) -> Any:
    """Return the value of a JSON or Python literal, since models write both; None if it has no JSON form."""
    for read in (read_json, lambda text: ast.literal_eval(text.strip())):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = read(text)
            written(value)
            return value
    return None
