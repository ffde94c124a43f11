"""Lets compiled code index arrays by members of an `IntEnum` with numba versions before 0.68."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.extending import overload

_FIRST_THAT_CAN = (0, 68)


def index_by_members() -> None:
    """Add `array[Member.NAME]` to an older numba, which engines that specdec runs in may pin."""
    if tuple(map(int, numba.__version__.split(".")[:2])) >= _FIRST_THAT_CAN:
        return

    @overload(operator.getitem, strict=False)
    def by_member(array: types.Type, index: types.Type) -> Callable[[Any, Any], Any] | None:
        is_ours = isinstance(array, types.Array) and isinstance(index, types.IntEnumMember)
        return (lambda array, index: array[index.value]) if is_ours else None
