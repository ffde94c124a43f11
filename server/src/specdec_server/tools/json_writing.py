"""Writes values of a model's call as JSON that every client reads."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def written(value: Any) -> str:
    """Return a value as JSON, without names that occur twice in one object.

    Raises:
        ValueError, TypeError, RecursionError: if it has no JSON form, such as infinity.
    """
    # Reading it back joins the two escapes of one character, and names that are equal as JSON, such as 1 and "1".
    plain = json.loads(json.dumps(value, allow_nan=False))
    return json.dumps(plain, ensure_ascii=False)


def escaped(text: str) -> str:
    """Return JSON text that UTF-8 can encode: surrogates, which occur in its strings only, as escapes."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def replaced(text: str) -> str:
    """Return text that UTF-8 can encode, with U+FFFD for each unpaired surrogate."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(text: str) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: if it is not JSON; NaN and infinity are not.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
