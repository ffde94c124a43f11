"""Lets Triton's interpreter compute as a GPU does, where it does not by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def multiply_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widen bfloat16 before products, and sum a row of a tile alike wherever it lies.

    The interpreter's own product reads bfloat16 as integers, and its BLAS sums edge rows of a tile in another order.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def widened(data: Any) -> Any:
        is_bfloat16 = data.dtype == np.uint16
        return (data.astype(np.uint32) << 16).view(np.float32) if is_bfloat16 else data.astype(np.float32)

    def create_dot(
        self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
    ) -> Any:
        product = np.einsum("mk,kn->mn", widened(a.data), widened(b.data))
        return TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
