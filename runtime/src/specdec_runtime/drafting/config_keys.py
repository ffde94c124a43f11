"""Reads single keys of a head's `config.json`, whose values may be of any type."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from specdec import ModelError

_MOST = 2**40
"""No size or id is larger."""


def number_of(
    config: Mapping[str, Any], key: str, origin: str, *, least: int, most: int = _MOST
) -> int | None:
    """Return a whole number; None if the key is missing or null.

    Args:
        config: contents of `config.json`.
        key: the key.
        origin: location named in errors.
        least: the least value.
        most: the largest one.

    Raises:
        ModelError: naming the key and its value, if it is anything else.
    """
    found = config.get(key)
    if found is None or (type(found) is int and least <= found <= most):
        return found
    raise _wrong(key, found, origin, f"a number from {least} on" + (f" to {most}" if most < _MOST else ""))


def size_of(config: Mapping[str, Any], key: str, origin: str, kind: str) -> int:
    """Return a number that must be there in a configuration of this kind, such as "an EAGLE head"; see `number_of`."""
    found = number_of(config, key, origin, least=1)
    if found is None:
        raise ModelError(f"{origin}: {key} is missing: it is not the configuration of {kind}")
    return found


def factor_of(config: Mapping[str, Any], key: str, origin: str) -> float | None:
    """Return a number that logits are scaled or capped by; None if the key is missing, null or 0; see `number_of`."""
    found = config.get(key)
    if found is None or found is False:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
        raise _wrong(key, found, origin, "a number")
    return float(found) or None


def flag_of(config: Mapping[str, Any], key: str, origin: str, default: bool = False) -> bool:
    """Return true or false, which may be written as 1 or 0; `default` if the key is missing or null; see `number_of`."""
    found = config.get(key)
    if found is None:
        return default
    if not isinstance(found, int) or found not in (0, 1):
        raise _wrong(key, found, origin, "true or false")
    return bool(found)


def ids_of(config: Mapping[str, Any], key: str, origin: str) -> tuple[int, ...] | None:
    """Return a list of layers; None if the key is missing or null; see `number_of`."""
    found = config.get(key)
    if found is None:
        return None
    if (
        not isinstance(found, list | tuple)
        or not found
        or any(type(k) is not int or abs(k) > _MOST for k in found)
    ):
        raise _wrong(key, found, origin, "a list of layer numbers")
    return tuple(found)


def _wrong(key: str, found: object, origin: str, wanted: str) -> ModelError:
    shown = repr(found)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return ModelError(
        f"{origin}: {key} is {shown} instead of {wanted}: fetch it again, or correct its config.json"
    )
