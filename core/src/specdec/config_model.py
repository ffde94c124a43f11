"""Base class of what users configure by keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from specdec.errors import ConfigError

__all__ = ["ConfigModel"]


class ConfigModel(BaseModel):
    """A frozen model without unknown keys. Numbers are not given as true or false, which pydantic takes for 1 and 0; text may
    be given as a path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    _error_prefix: ClassVar[str | None] = None
    """What errors begin with, which then are `ConfigError`s; None leaves pydantic's as they are."""

    if not TYPE_CHECKING:  # for type checkers the fields are the parameters

        def __init__(self, /, **keys: Any) -> None:
            try:
                super().__init__(**keys)
            except ValidationError as error:
                if self._error_prefix is None:
                    raise
                from specdec.messages import explain

                raise ConfigError(explain(error, self._error_prefix, type(self))) from None

    @field_validator("*", mode="before")
    @classmethod
    def _has_the_kind(cls, value: object, info: ValidationInfo) -> object:
        kinds = _kinds_of(cls, str(info.field_name), within=not isinstance(value, bool))
        if isinstance(value, Path) and str in kinds:
            return str(value)
        is_number = (int in kinds or float in kinds) and bool not in kinds and Any not in kinds
        if is_number and _has_truth_value(value):
            raise ValueError("input should be a number, and true or false is none")
        return value


@cache
def _kinds_of(model: type[ConfigModel], field: str, *, within: bool) -> list[object]:
    return _kinds(model.model_fields[field].annotation, within=within)


def _kinds(annotation: object, *, within: bool) -> list[object]:
    """Return what an annotation allows, or, with `within`, also allows inside; of literals their types."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [type(part) for part in parts]
    if origin is Annotated:
        parts = parts[:1]
    elif not within and origin not in (Union, UnionType):
        return [annotation]
    return [kind for part in parts for kind in _kinds(part, within=within)] or [annotation]


def _has_truth_value(value: object) -> bool:
    """Return whether a value is, or has in it, true or false."""
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_truth_value, value))
    return isinstance(value, bool)
