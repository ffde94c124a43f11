"""Keys that users and third parties define: what is no number, and names that Python gives another meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, NonNegativeInt, ValidationError

from specdec import SamplingParams
from specdec.config import SpeculativeConfig
from specdec.errors import ConfigError
from specdec.interfaces import RequestArgs

NO_NUMBER = "true or false is none"


class Theirs(RequestArgs):
    """Fields as a third party writes them."""

    bounded: Annotated[int, Field(ge=0)] | None = None
    natural: NonNegativeInt | None = None
    listed: list[int] = []
    named: dict[str, int | None] = {}
    either: int | list[float] = 1
    one_or_two: Literal[1, 2] = 1
    number_or_not: bool | int = 1
    anything: Any = None
    flags: list[bool] | list[int] = []


class Named(RequestArgs):
    """Text fields, and one that is a path already."""

    model: str | None = None
    kind: Annotated[str, Field(min_length=1)] = "x"
    file: Path | None = None
    number: int = 0


def test_text_may_be_given_as_a_path() -> None:
    given = Named(model=Path("/a/b"), kind=Path("c"), file=Path("/d"))
    assert (given.model, given.kind, given.file) == ("/a/b", "c", Path("/d"))
    with pytest.raises(ValidationError, match="number"):
        Named(number=Path("/a"))
    config = SpeculativeConfig(
        method=Path("./mine.py:Mine"), model=Path("/a"), rejection_sample_method=Path("b.py:C")
    )
    assert (config.method, config.model, config.rejection_sample_method) == ("mine.py:Mine", "/a", "b.py:C")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bounded", True), ("natural", False), ("listed", [3, True]), ("named", {"a": True}), ("either", True),
        ("either", [0.5, False]), ("one_or_two", True),
    ],
)  # fmt: skip
def test_true_is_no_number_wherever_one_is_meant(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=NO_NUMBER):
        Theirs(**{key: value})


def test_true_is_itself_where_it_may_be() -> None:
    config = Theirs(number_or_not=True, anything=[True], flags=[True], listed=[1], named={"a": None})
    assert (config.number_or_not, config.anything, config.flags) == (True, [True], [True])
    with pytest.raises(ValidationError, match="valid list"):
        Theirs(listed=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stop_token_ids", [True]), ("allowed_token_ids", [5, False]), ("logit_bias", {7: True}), ("logit_bias", {True: 1.0}),
        ("prediction", [True]),
    ],
)  # fmt: skip
def test_true_is_no_token_id(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{key}' = .*{NO_NUMBER}"):
        SamplingParams(**{key: value})


def test_a_key_named_self_is_an_unknown_key() -> None:
    keys: dict[str, Any] = {"self": 1}
    with pytest.raises(ConfigError, match="unknown key 'self'"):
        SamplingParams(**keys)
