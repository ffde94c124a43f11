"""Error messages for invalid request bodies."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

_INSTEAD = {
    "max_completion_tokens": "use max_tokens",
    "guided_json": "use structured_outputs: {'json': ...}",
    "guided_regex": "use structured_outputs: {'regex': ...}",
    "guided_choice": "use structured_outputs: {'choice': ...}",
    "guided_grammar": "use structured_outputs: {'grammar': ...}",
    "use_beam_search": "there is no beam search",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "chat_template": "the template is the server's, --chat-template sets it",
    "audio": "there is text only",
    "web_search_options": "there is no search here: give a tool of your own",
}
"""Fields that other servers accept, and what to use here instead."""


def explained(
    path: str, kind: type[BaseModel], error: ValidationError, body: dict[str, Any]
) -> tuple[str, str, str | None]:
    """Return a message about the first error of a body, the same without the value, and the field that contains it.

    Args:
        path: of the request.
        kind: what the body should have been.
        error: what pydantic found.
        body: as sent.
    """
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    if not first["loc"]:
        message = first["msg"].removeprefix("Value error, ")
        return message, message, None
    # In addition to names and indices, the location contains the types of union members.
    inside = first["loc"]
    field = str(inside[0])
    if first["type"] == "extra_forbidden" and len(inside) == 1:
        message = _unknown(path, kind, field)
        return message, message, field
    if first["type"] == "missing" and len(inside) == 1:
        message = f"{path} needs the field {field!r}"
        return message, message, field
    wanted = dict.fromkeys(
        found["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        for found in errors
        if found["loc"][:1] == inside[:1]
    )
    place, given = _place_of(body, inside)
    requirement = f"is not what it should be: {' or '.join(wanted)}"
    return f"{place}: {_short(given)} {requirement}", f"{place} {requirement}", field


def _unknown(path: str, kind: type[BaseModel], field: str) -> str:
    if field in _INSTEAD:
        return f"{path} knows no field {field!r}: {_INSTEAD[field]}"
    nearest = get_close_matches(field, kind.model_fields, n=1, cutoff=0.8)
    hint = (
        f"did you mean {nearest[0]!r}?" if nearest else "leave it out; /openapi.json has those that there are"
    )
    return f"{path} knows no field {field!r}: {hint}"


def _place_of(body: dict[str, Any], inside: tuple[int | str, ...]) -> tuple[str, Any]:
    """Return the path to the wrong value, without the types of union members, and the value."""
    name = ""
    value: Any = body
    for part in inside:
        if isinstance(value, dict) and part in value:
            name, value = f"{name}.{part}" if name else str(part), value[part]
        elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
            name, value = f"{name}[{part}]", value[part]
    return name or str(inside[0]), value


def _short(given: Any) -> str:
    text = json.dumps(given, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
