"""Rejects JSON schemas that xgrammar would not fully enforce, naming the keyword."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from specdec.errors import ConfigError
from specdec.grammar.disjoint import are_disjoint
from specdec.grammar.reference import is_remote, resolved

MAX_DEPTH = 100
"""The deepest nesting of schemas; compile time grows with its square."""
_UNHELD = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas",
    "dependencies", "$dynamicRef", "$recursiveRef",
})  # fmt: skip
_TYPE_OF = {
    "minLength": "string", "maxLength": "string", "pattern": "string", "format": "string", "minimum": "number",
    "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number", "multipleOf": "number",
    "minItems": "array", "maxItems": "array", "minProperties": "object", "maxProperties": "object",
}  # fmt: skip
"""Keywords that are enforced only beside a `type`, with that type."""
_STRUCTURE = frozenset({
    *_TYPE_OF, "type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties",
    "propertyNames", "items", "prefixItems", "unevaluatedItems", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf",
})  # fmt: skip
"""Keywords that constrain values."""
_FORMATS = frozenset({
    "date", "date-time", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname", "duration", "json-pointer",
    "uri-reference", "uri-template", "relative-json-pointer",
})  # fmt: skip
_ALONE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
"""Keywords beside which others are ignored."""
_ONE, _MANY, _NAMED = (
    ("additionalProperties", "items", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
    ("prefixItems", "anyOf", "oneOf", "allOf"),
    ("properties", "patternProperties"),
)
"""Keywords whose values are a schema, a list of schemas, or schemas by name."""
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


def check_schema(schema: str | Mapping[str, Any]) -> None:
    """Check that everything in a schema will be enforced.

    Raises:
        ConfigError: naming the keyword and its location.
    """
    try:
        root = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json' cannot be compiled: it is not JSON: {error}"
        ) from None
    seen: set[int] = set()
    open_schemas = [(root, "#", 0)]
    while open_schemas:
        found, place, depth = open_schemas.pop()
        if not isinstance(found, Mapping) or id(found) in seen:
            continue
        seen.add(id(found))
        if depth > MAX_DEPTH:
            raise _refused(
                place, "schemas", f"are nested more than {MAX_DEPTH} deep: make the schema flatter"
            )
        _check_one(found, place, root)
        open_schemas += [(inner, where, depth + 1) for inner, where in _inner(found, place)]
        if "$ref" in found:
            target = resolved(root, found["$ref"])
            open_schemas.append((target, str(found["$ref"]), depth + 1))


def _inner(schema: Mapping[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    for keyword in _ONE:
        if keyword in schema:
            yield schema[keyword], f"{place}/{keyword}"
    for keyword in _MANY:
        if isinstance(schema.get(keyword), list):
            yield from ((inner, f"{place}/{keyword}/{i}") for i, inner in enumerate(schema[keyword]))
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), Mapping):
            yield from ((inner, f"{place}/{keyword}/{name}") for name, inner in schema[keyword].items())


def _check_one(schema: Mapping[str, Any], place: str, root: Any) -> None:
    for keyword in schema:
        if keyword in _UNHELD or (keyword == "uniqueItems" and schema[keyword]):
            raise _refused(place, keyword, "is not supported: leave it out")
    _check_reference(schema, place, root)
    _check_alone(schema, place)
    _check_types(schema, place)
    _check_objects(schema, place)
    if len(schema.get("allOf") or ()) > 1:
        raise _refused(place, "allOf", "is supported with one schema only: write them as one")
    if "oneOf" in schema and not are_disjoint(schema["oneOf"], root):
        raise _refused(
            place,
            "oneOf",
            "is supported where a type, or a required property with const or enum, tells its schemas apart: "
            "use anyOf if several may hold",
        )


def _check_reference(schema: Mapping[str, Any], place: str, root: Any) -> None:
    if "$ref" not in schema:
        return
    target = schema["$ref"]
    if is_remote(target):
        raise _refused(place, "$ref", f"leads to {target!r}, and nothing is fetched: it must begin with '#/'")
    if resolved(root, target) is None:
        raise _refused(place, "$ref", f"leads to {target!r}, which is not in the schema")


def _check_alone(schema: Mapping[str, Any], place: str) -> None:
    chief = next((keyword for keyword in _ALONE if keyword in schema), None)
    if chief is None:
        return
    others = [keyword for keyword in schema if keyword in _STRUCTURE and keyword != chief]
    if chief in ("enum", "const"):
        others = [keyword for keyword in others if keyword != "type"]
        values = schema["enum"] if chief == "enum" else [schema["const"]]
        types = _types(schema)
        wrong = (
            [v for v in values if types and JSON_TYPES.get(type(v)) not in types]
            if isinstance(values, list)
            else []
        )
        if wrong:
            raise _refused(place, chief, f"has {json.dumps(wrong[0])}, which is not of the type beside it")
    if others:
        raise _refused(place, others[0], f"is not supported beside {chief!r}: move it into the schemas there")


def _types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    found = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
    return found | ({"integer"} if "number" in found else set())


def _check_types(schema: Mapping[str, Any], place: str) -> None:
    types = _types(schema)
    for keyword, kind in _TYPE_OF.items():
        if keyword not in schema:
            continue
        if not types:
            raise _refused(place, keyword, f'is enforced only beside \'type\': add "type": "{kind}"')
    if "string" in types:
        if "format" in schema and schema["format"] not in _FORMATS:
            raise _refused(
                place,
                "format",
                f"= {schema['format']!r} is not supported: use one of {', '.join(sorted(_FORMATS))}",
            )
        if len({"pattern", "format"} & schema.keys()) and {"minLength", "maxLength"} & schema.keys():
            raise _refused(
                place,
                "minLength" if "minLength" in schema else "maxLength",
                "is not supported beside a pattern",
            )
    if "multipleOf" in schema and "number" in types:
        raise _refused(place, "multipleOf", "is supported for integers only")


def _check_objects(schema: Mapping[str, Any], place: str) -> None:
    required = schema.get("required")
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    unknown = [name for name in required if name not in known] if isinstance(required, list) else []
    if unknown:
        raise _refused(
            place, "required", f"names {unknown[0]!r}, which is not among the properties: add it there"
        )
    if "propertyNames" in schema and (known or schema.get("patternProperties")):
        raise _refused(place, "propertyNames", "is not supported beside properties")


def _refused(place: str, keyword: str, why: str) -> ConfigError:
    return ConfigError(f"SamplingParams: structured_outputs 'json': {keyword!r} at {place} {why}")
