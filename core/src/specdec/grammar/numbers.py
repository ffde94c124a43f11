"""Checks the keywords of a JSON schema that bound numbers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from math import isfinite
from typing import Any

from specdec.grammar.unsupported import UnsupportedKeyword

_STEP = Decimal("0.000001")
"""xgrammar writes bounded numbers with up to six decimals, and the empty text if none of them is left."""
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def check_numbers(schema: Mapping[str, Any], types: Set[str], place: str) -> None:
    """Check the bounds of one schema.

    Args:
        schema: with the bounds.
        types: that it allows; `number` implies `integer`.
        place: of the schema.

    Raises:
        UnsupportedKeyword: for a bound that a grammar cannot enforce.
    """
    for keyword in _BOUNDS:
        bound = schema.get(keyword, 0)
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not isfinite(bound):
            raise UnsupportedKeyword(place, keyword, f"= {bound!r} must be a number")
        if (
            "integer" in types
            and "number" not in types
            and not (isinstance(bound, int) and abs(bound) < 2**63)
        ):
            raise UnsupportedKeyword(
                place, keyword, f"= {bound!r} must be a whole number of 64 bits for integers"
            )
    if "number" in types:
        _check_range(schema, place)
    if "multipleOf" in schema:
        _check_factor(schema, types, place)


def _check_range(schema: Mapping[str, Any], place: str) -> None:
    """Check that a number with six decimals is left."""
    bounds = {keyword: Decimal(repr(schema[keyword])) for keyword in _BOUNDS if keyword in schema}
    with localcontext() as context:
        context.prec = 700
        least = [
            (bounds[keyword] / _STEP).to_integral_value(ROUND_CEILING)
            for keyword in _BOUNDS[:2]
            if keyword in bounds
        ]
        most = [
            (bounds[keyword] / _STEP).to_integral_value(ROUND_FLOOR)
            for keyword in _BOUNDS[2:]
            if keyword in bounds
        ]
        left = min(most, default=Decimal(0)) - max(least, default=Decimal(0))
        is_on_edge = any(
            keyword in bounds
            and bounds[keyword] in (max(least, default=0) * _STEP, min(most, default=0) * _STEP)
            for keyword in ("exclusiveMinimum", "exclusiveMaximum")
        )
    if least and most and (left < 0 or (is_on_edge and left < 2)):
        raise UnsupportedKeyword(
            place, next(iter(bounds)), "and the other bound leave no number with six decimals"
        )


def _check_factor(schema: Mapping[str, Any], types: Set[str], place: str) -> None:
    factor = schema["multipleOf"]
    if "number" in types or not isinstance(factor, int) or isinstance(factor, bool) or factor <= 0:
        raise UnsupportedKeyword(
            place, "multipleOf", "is supported for integers, with a positive integer, only"
        )
    if bool({"minimum", "exclusiveMinimum"} & schema.keys()) != bool(
        {"maximum", "exclusiveMaximum"} & schema.keys()
    ):
        raise UnsupportedKeyword(
            place, "multipleOf", "is supported with a minimum and a maximum, or with neither: add the other"
        )
