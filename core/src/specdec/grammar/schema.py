"""Rejects JSON schemas that xgrammar would not fully enforce, naming the keyword."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from specdec.errors import ConfigError
from specdec.grammar.disjoint import are_disjoint
from specdec.grammar.numbers import check_numbers
from specdec.grammar.pattern import for_json_string
from specdec.grammar.reference import is_remote, is_walkable, resolved
from specdec.grammar.unsupported import UnsupportedKeyword

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
    "patternProperties": "object", "propertyNames": "object",
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
    for _ in checked_schemas(loaded(schema)):
        pass


def loaded(schema: str | Mapping[str, Any]) -> Any:
    """Return a schema as JSON values of its own.

    Raises:
        ConfigError: if it is not JSON.
    """
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        found = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode()  # raises for half of a surrogate pair
        return found
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json' cannot be compiled: it is not JSON: {error}"
        ) from None


def checked_schemas(root: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every schema in use, the outer one first, with its location. A schema may be changed after the next is taken.

    Raises:
        ConfigError: if one has a keyword that will not be enforced.
    """
    for found, place in _reachable(root):
        _check_one(found, place, root)
        yield found, place


def supported_part(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the keywords that will not be enforced; it allows more than before."""
    root = deepcopy(dict(schema))
    try:
        for found, place in _reachable(root):
            _drop_unsupported(found, place, root)
        check_schema(root)
    except ConfigError:
        return {"type": "object"}
    return root


def _drop_unsupported(schema: dict[str, Any], place: str, root: Any) -> None:
    while True:
        try:
            return _check_one(schema, place, root)
        except UnsupportedKeyword as error:
            dropped = schema.pop(error.keyword)
            if error.keyword == "oneOf" and not schema.keys() & _ALONE:
                schema["anyOf"] = dropped


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _reachable(root: Any) -> Iterator[tuple[dict[str, Any], str]]:
    seen: set[int] = set()
    open_schemas = [(root, "#", 0)]
    while open_schemas:
        found, place, depth = open_schemas.pop()
        if not isinstance(found, dict) or id(found) in seen:
            continue
        seen.add(id(found))
        if depth > MAX_DEPTH:
            raise UnsupportedKeyword(
                place, "schemas", f"are nested more than {MAX_DEPTH} deep: make the schema flatter"
            )
        yield found, place
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
    try:
        _check_keywords(schema, place, root)
    except (TypeError, AttributeError) as error:  # a keyword's value is of a type that no schema has
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json' cannot be compiled: at {place} is no JSON schema: {error}"
        ) from None


def _check_keywords(schema: Mapping[str, Any], place: str, root: Any) -> None:
    for keyword in schema:
        if keyword in _UNHELD or (keyword == "uniqueItems" and schema[keyword]):
            raise UnsupportedKeyword(place, keyword, "is not supported: leave it out")
    if "$id" in schema and place != "#":
        raise UnsupportedKeyword(place, "$id", "is supported at the root only: references start there")
    if isinstance(schema.get("items"), list):
        raise UnsupportedKeyword(place, "items", "is a list, which newer drafts call 'prefixItems': use that")
    _check_reference(schema, place, root)
    _check_alone(schema, place)
    _check_types(schema, place)
    _check_sizes(schema, place)
    check_numbers(schema, _types(schema), place)
    _check_objects(schema, place)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and not schema[keyword]:
            raise UnsupportedKeyword(place, keyword, "has no schemas: nothing is allowed")
    if len(schema.get("allOf") or ()) > 1:
        raise UnsupportedKeyword(place, "allOf", "is supported with one schema only: write them as one")
    if "oneOf" in schema and not are_disjoint(schema["oneOf"], root):
        raise UnsupportedKeyword(
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
        raise UnsupportedKeyword(
            place, "$ref", f"leads to {target!r}, and nothing is fetched: it must begin with '#/'"
        )
    if not is_walkable(target):
        raise UnsupportedKeyword(
            place, "$ref", f"= {target!r} has an escaped or empty step: rename what it leads to"
        )
    if not isinstance(resolved(root, target), Mapping | bool):
        raise UnsupportedKeyword(place, "$ref", f"leads to {target!r}, which is not in the schema")


def _check_alone(schema: Mapping[str, Any], place: str) -> None:
    chief = next((keyword for keyword in _ALONE if keyword in schema), None)
    if chief is None:
        return
    others = [keyword for keyword in schema if keyword in _STRUCTURE and keyword != chief]
    if chief in ("enum", "const"):
        others = [keyword for keyword in others if keyword != "type"]
        values = schema["enum"] if chief == "enum" else [schema["const"]]
        types = _types(schema)
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in _scalars(values)):
            raise UnsupportedKeyword(
                place, chief, "has an integer that does not fit in 64 bits: write it as a string"
            )
        wrong = (
            [v for v in values if types and JSON_TYPES.get(type(v)) not in types]
            if isinstance(values, list)
            else []
        )
        if wrong:
            raise UnsupportedKeyword(
                place, chief, f"has {json.dumps(wrong[0])}, which is not of the type beside it"
            )
    if others:
        raise UnsupportedKeyword(
            place, others[0], f"is not supported beside {chief!r}: move it into the schemas there"
        )


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
            raise UnsupportedKeyword(
                place, keyword, f'is enforced only beside \'type\': add "type": "{kind}"'
            )
    if "string" in types:
        if "pattern" in schema:
            _check_pattern(schema["pattern"], place, "pattern")
        if "format" in schema and schema["format"] not in _FORMATS:
            raise UnsupportedKeyword(
                place,
                "format",
                f"= {schema['format']!r} is not supported: use one of {', '.join(sorted(_FORMATS))}",
            )
        if {"pattern", "format"} <= schema.keys():
            raise UnsupportedKeyword(place, "format", "is not supported beside a pattern")
        if {"pattern", "format"} & schema.keys() and {"minLength", "maxLength"} & schema.keys():
            raise UnsupportedKeyword(
                place,
                "minLength" if "minLength" in schema else "maxLength",
                "is not supported beside a pattern",
            )


def _check_pattern(pattern: object, place: str, keyword: str) -> None:
    try:
        if not isinstance(pattern, str):
            raise ValueError("it must be text")
        for_json_string(pattern)
    except ValueError as error:
        raise UnsupportedKeyword(place, keyword, f"= {pattern!r:.200}: {error}") from None


def _check_sizes(schema: Mapping[str, Any], place: str) -> None:
    for kind in ("Length", "Items", "Properties"):
        sizes = [(keyword, schema[keyword]) for keyword in (f"min{kind}", f"max{kind}") if keyword in schema]
        for keyword, size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise UnsupportedKeyword(place, keyword, f"= {size!r} must be a whole number, at least 0")
        if len(sizes) == 2 and sizes[0][1] > sizes[1][1]:
            raise UnsupportedKeyword(
                place, sizes[0][0], f"= {sizes[0][1]} is above {sizes[1][0]} = {sizes[1][1]}"
            )


def _check_objects(schema: Mapping[str, Any], place: str) -> None:
    required = schema.get("required")
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    unknown = [name for name in required if name not in known] if isinstance(required, list) else []
    if unknown:
        raise UnsupportedKeyword(
            place, "required", f"names {unknown[0]!r}, which is not among the properties: add it there"
        )
    patterns = schema.get("patternProperties")
    if isinstance(patterns, Mapping) and patterns:
        for pattern in patterns:
            _check_pattern(pattern, place, "patternProperties")
        more = schema.get("additionalProperties", schema.get("unevaluatedProperties", False))
        if known or len(patterns) > 1 or more is not False:
            raise UnsupportedKeyword(
                place,
                "patternProperties",
                "is supported with one pattern, and not beside properties: a name could fit several schemas",
            )
    if "propertyNames" in schema and (known or schema.get("patternProperties")):
        raise UnsupportedKeyword(place, "propertyNames", "is not supported beside properties")


def _scalars(value: Any) -> Iterator[Any]:
    """Yield all strings, numbers and constants within a JSON value."""
    open_values = [value]
    while open_values:
        found = open_values.pop()
        if isinstance(found, list | dict):
            open_values += found if isinstance(found, list) else found.values()
        else:
            yield found
