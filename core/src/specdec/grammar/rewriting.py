"""Writes JSON schemas and structural tags so that xgrammar enforces what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specdec.errors import ConfigError
from specdec.grammar.pattern import for_json_string, for_marked_text, for_text, of_length
from specdec.grammar.schema import checked_schemas, loaded
from specdec.grammar.unsupported import UnsupportedKeyword

_YEAR = r"(\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)"
_DAY = (
    rf"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
    r"|(\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_WORD = r"[\w!#$%&'*+/=?^`{|}~-]+"
_POINTER = r"(/([^/~]|~[01])*)*"
_FORMATS = {
    "date": f"^{_DAY}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "time": f"^{_TIME}$",
    "email": rf"^{_WORD}(\.{_WORD})*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(0|[1-9][0-9]*)(#|{_POINTER})$",
}
"""Formats that xgrammar takes too widely: dates that are none, and characters that JSON escapes."""
_OPEN = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")


def rewritten_schema(schema: str | Mapping[str, Any], *, style: str = "json") -> Any:
    """Return a schema that xgrammar enforces.

    Args:
        schema: as given.
        style: how xgrammar writes values. Only `json` has strings in quotes.

    Raises:
        ConfigError: naming a keyword that cannot be enforced.
    """
    root = loaded(schema)
    for found, place in list(checked_schemas(root)):
        if style != "json" and (wrong := {"pattern", "format", "minLength", "maxLength"} & found.keys()):
            raise UnsupportedKeyword(place, min(wrong), f"is not supported in the style {style!r}")
        _rewrite(found)
    return root


def rewritten_tag(tag: str | Mapping[str, Any]) -> Any:
    """Return a structural tag whose schemas and regular expressions are enforced.

    Raises:
        ConfigError: naming what cannot be enforced.
    """
    root = json.loads(tag) if isinstance(tag, str) else json.loads(json.dumps(tag))
    open_values = [root]
    while open_values:
        found = open_values.pop()
        if isinstance(found, list):
            open_values += found
        if not isinstance(found, dict):
            continue
        if found.get("any_order"):
            raise ConfigError(
                "structured_outputs 'structural_tag': 'any_order' does not keep to 'required': leave it out"
            )
        if "json_schema" in found:
            found["json_schema"] = rewritten_schema(found["json_schema"], style=_style_of(found))
        if found.get("type") == "regex":
            found["pattern"] = rewritten_regex(str(found.get("pattern")))
        open_values += [inner for key, inner in found.items() if key != "json_schema"]
    return root


def rewritten_regex(regex: str) -> str:
    """Return a regular expression for a whole text that xgrammar enforces.

    Raises:
        ConfigError: saying what cannot be enforced.
    """
    try:
        return for_text(regex)
    except ValueError as error:
        raise ConfigError(
            f"SamplingParams: structured_outputs 'regex' cannot be compiled: {regex!r:.200}: {error}"
        ) from None


def marked_string(schema: Mapping[str, Any]) -> str | None:
    """Return a regular expression for the text of a string that a mark ends; None if the schema takes any string.

    Raises:
        UnsupportedKeyword: for a keyword that cannot be enforced there.
    """
    pattern = schema.get("pattern", _FORMATS.get(schema.get("format", "")))
    if "format" in schema and pattern is None:
        raise UnsupportedKeyword("#", "format", f"= {schema['format']!r} is not supported outside of JSON")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if pattern is None and (least or most is not None):
        pattern = rf"^[^<]{{{least},{'' if most is None else most}}}$"
    return None if pattern is None else for_marked_text(pattern)


def _style_of(tag: Mapping[str, Any]) -> str:
    return str(tag.get("style", "json" if tag.get("type") == "json_schema" else tag.get("type")))


def _rewrite(schema: dict[str, Any]) -> None:
    given = schema.get("type")
    types = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if "string" in types:
        _rewrite_string(schema)
    is_array = "array" in types or "prefixItems" in schema
    if is_array and not {"items", "unevaluatedItems"} & schema.keys():
        schema["items"] = True
    if {"minProperties", "maxProperties"} & schema.keys() and not set(_OPEN) & schema.keys():
        schema["additionalProperties"] = True
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict):
        schema["patternProperties"] = {for_json_string(name): inner for name, inner in patterns.items()}


def _rewrite_string(schema: dict[str, Any]) -> None:
    if "pattern" in schema:
        schema["pattern"] = for_json_string(schema["pattern"])
    elif schema.get("format") in _FORMATS:
        schema["pattern"] = for_json_string(_FORMATS[schema.pop("format")])
    elif {"minLength", "maxLength"} & schema.keys():
        schema["pattern"] = of_length(schema.pop("minLength", 0), schema.pop("maxLength", None))
