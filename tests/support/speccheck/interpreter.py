"""Lets Triton's interpreter compute as a GPU does, where it does not by itself, and leave out what it does in vain."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _as_a_gpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("TRITON_INTERPRET") == "1":
            _compute_as_a_gpu(patch)
            _leave_out(patch)
        yield


def _compute_as_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """Multiply and round as a GPU does.

    The interpreter's own product reads bfloat16 as integers, and its BLAS sums edge rows of a tile in another order; its own
    cast to bfloat16 cuts off, which a sum that is compared exactly shows.
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

    def create_fp_trunc(self: Any, src: Any, dst_type: Any) -> Any:
        if src.data.dtype != np.float32 or dst_type.scalar.name != "bf16":
            return self.cast_impl(src, dst_type)
        rounded = torch.from_numpy(src.data.copy()).bfloat16().view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16), dst_type.scalar)

    patch.setattr(InterpreterBuilder, "create_dot", create_dot)
    patch.setattr(InterpreterBuilder, "create_fp_trunc", create_fp_trunc)


def _leave_out(patch: pytest.MonkeyPatch) -> None:
    """Leave out two fifths of its work: sums for assertions that are off, and a search of Triton's modules at every launch."""
    from triton import language
    from triton.runtime import interpreter

    @cache
    def functions(module: Any) -> list[tuple[str, Any]]:
        return [each for each in inspect.getmembers(module) if language.core.is_builtin(each[1])]

    def patch_builtin(module: Any, builder: Any, scope: Any) -> None:
        for name, function in functions(module):
            interpreter._patch_attr(module, name, function, builder, scope)

    options = interpreter.interpreter_builder.options
    assert not options.debug, "then sums of integers are looked at"
    patch.setattr(interpreter.interpreter_builder, "options", type(options)(sanitize_overflow=False))
    patch.setattr(interpreter, "_patch_builtin", patch_builtin)
