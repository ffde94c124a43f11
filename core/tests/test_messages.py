"""How problems are told."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec import ConfigError, SamplingParams
from specdec.messages import explain, unknown_key


class Example(BaseModel):
    """A model with one field of each kind."""

    model_config = ConfigDict(extra="forbid")

    required: int
    number: int = Field(1, ge=1)
    choice: int | Literal["auto"] = "auto"
    items: list[int] = []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "X: 'required' is missing"),
        ({"required": 1, "numbr": 2},
         "X: unknown key 'numbr': did you mean 'number'? Valid keys: choice, items, number, required"),
        ({"required": 1, "qqq": 2}, "X: unknown key 'qqq'. Valid keys: choice, items, number, required"),
        ({"required": 1, "number": 0}, "X: 'number' = 0: input should be greater than or equal to 1"),
        ({"required": 1, "choice": "all"},
         "X: 'choice' = 'all': input should be a valid integer, unable to parse string as an integer or "
         "input should be 'auto'"),
        ({"required": 1, "items": [1, "b"]},
         "X: 'items': [1] input should be a valid integer, unable to parse string as an integer"),
        ({"required": 1, "number": "x" * 100}, f"X: 'number' = 'xxxx{'x' * 52}...: input should be"),
    ],
)  # fmt: skip
def test_a_problem_is_one_line_with_key_value_and_remedy(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Example.model_validate(keys)
    told = explain(caught.value, "X", Example)
    assert told.startswith(message)
    assert "\n" not in told


def test_a_key_for_one_that_takes_none_is_told_so() -> None:
    assert unknown_key("x", ()) == "unknown key 'x'. Valid keys: none"


def test_sampling_params_tell_their_problems_the_same_way() -> None:
    with pytest.raises(ConfigError) as caught:
        SamplingParams(temprature=1.0, top_p=1.5, stop="")
    lines = str(caught.value).splitlines()
    assert lines[0] == "SamplingParams: 'top_p' = 1.5: input should be less than or equal to 1"
    assert lines[1].startswith(
        "SamplingParams: unknown key 'temprature': did you mean 'temperature'? Valid keys: "
    )
