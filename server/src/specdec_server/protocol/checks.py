"""Checks for every field of a body, whatever its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, FailFast, ValidationInfo

Item = TypeVar("Item")


class _FailFast(FailFast):
    def __hash__(self) -> int:  # members of a union must be hashable
        return hash(self.fail_fast)


ListOf = Annotated[list[Item], _FailFast()]
"""A list that reports only its first error; reporting a million of them would take minutes."""

MAX_ENTRIES = 10_000
"""Maximum entries of a mapping whose values are checked one by one."""
MAX_FIELDS = 200
"""Maximum fields of a body; no request has more."""
MAX_MESSAGES = 10_000
"""Maximum messages of a conversation."""


def check_fields(cls: type[BaseModel], body: Any) -> Any:
    """Return a body without unknown fields that are null, which clients send for what they do not set.

    Raises:
        ValueError: if it has more than `MAX_FIELDS` fields.
    """
    if not isinstance(body, dict):
        return body
    if len(body) > MAX_FIELDS:
        raise ValueError(f"the body has {len(body)} fields, and no request has more than {MAX_FIELDS}")
    return {name: value for name, value in body.items() if value is not None or name in cls.model_fields}


def check_value(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """Return the value of a field unchanged.

    Raises:
        ValueError: for a boolean in a numeric field, or too many entries.
    """
    kinds = set(_kinds(cls.model_fields[str(info.field_name)].annotation))
    if Any not in kinds and isinstance(value, dict) and len(value) > MAX_ENTRIES:
        raise ValueError(f"a mapping of at most {MAX_ENTRIES} entries, and it has {len(value)}")
    is_allowed = isinstance(value, bool) and bool in kinds
    if Any not in kinds and {int, float} & kinds and not is_allowed and _has_boolean(value):
        raise ValueError("a number; true and false are not numbers")
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have at any depth; `Any` for a model, which checks its own values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield Any
    elif get_origin(annotation) is Literal:
        yield from map(type, get_args(annotation))
    elif get_args(annotation):
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation


def _has_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, bool | list | dict) and _has_boolean(item) for item in inner)
