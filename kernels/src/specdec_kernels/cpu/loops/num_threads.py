"""The number of threads, for compiled code."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.loops.lanes import INDEX, declared


def _typed(typing_context: Any) -> Any:
    """Return numba's number of threads by the name of its function, which its parallel loops call too.

    `numba.get_num_threads` has that function's address of this process in it, so code that calls it cannot be kept.
    """

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.call(declared(builder, "get_num_threads", INDEX, []), [])

    return types.int64(), codegen


num_threads: Any = intrinsic(_typed)
