"""Makes arrays from addresses inside compiled code; one compiled loop then works for models of any depth."""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.jit import njit


def _pointer(typing_context: Any, address: Any, dtype: Any) -> Any:
    """Convert an integer to a pointer to numbers of a type."""
    result = types.CPointer(dtype.dtype)  # type: ignore[no-untyped-call]  # numba's types are not annotated

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(types.int64, dtype), codegen


_pointer_to: Any = intrinsic(_pointer)
_array_of: Any = numba.carray  # type: ignore[attr-defined]  # it is there


@njit(inline="always")
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """Return the contiguous array of a type, like `np.float32`, at an address; nothing is copied or kept alive."""
    return _array_of(_pointer_to(address, dtype), shape)
