"""Base class of what users configure by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from specdec.errors import ConfigError

__all__ = ["Keys"]


class Keys(BaseModel):
    """A frozen model without unknown keys, whose numbers are not given as true or false, which pydantic takes for 1 and 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    _place: ClassVar[str | None] = None
    """What errors begin with, which then are `ConfigError`s; None leaves pydantic's as they are."""

    if not TYPE_CHECKING:  # for type checkers the fields are the parameters

        def __init__(self, **keys: Any) -> None:
            try:
                super().__init__(**keys)
            except ValidationError as error:
                if self._place is None:
                    raise
                from specdec.messages import explain

                raise ConfigError(explain(error, self._place, type(self))) from None

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        kind = cls.model_fields[str(info.field_name)].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("input should be a number, and true or false is none")
        return value
