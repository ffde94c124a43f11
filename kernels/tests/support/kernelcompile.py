"""Compiles kernels for a GPU on a machine without one: to machine code, with the shared memory it takes known."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

COMPILES = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
    pytest.mark.usefixtures("fresh_cache"),
]
"""Marks of every module that compiles."""

USUAL_MEMORY = 48 * 1024
"""Shared memory that a block may take anywhere."""
MOST_MEMORY = 227 * 1024
"""What it may take on compute capability 9.0."""

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
    torch.uint8: "*u8",
}


def compiled(
    kernel: Any,
    types: dict[str, str],
    constants: dict[str, Any],
    *,
    others: str | None = None,
    memory: int = USUAL_MEMORY,
    **options: Any,
) -> Any:
    """Compile for an NVIDIA GPU of compute capability 9.0, check what comes out, and return it.

    Args:
        kernel: a `triton.jit` function.
        types: of arguments.
        constants: values of arguments that are compiled in; all that are in capitals have to be.
        others: the type of sizes and strides that neither names; None wants every argument named.
        memory: the most shared memory that a block may take.
        options: of the launch.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    assert set(types) | set(constants) <= set(names)
    assert not set(types) & set(constants)
    unnamed = set(names) - set(types) - set(constants)
    assert not unnamed or others is not None
    assert not any(name.endswith("_ptr") for name in unnamed)
    assert all(name in constants for name in names if name.isupper())
    source = ASTSource(
        fn=kernel,
        signature={n: "constexpr" if n in constants else types.get(n, others) for n in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= memory
    return binary


class Compiler:
    """Stands for a kernel: compiles a launch as its launcher makes it instead of running it.

    Args:
        kernel: the kernel.
        binaries: where what is compiled goes, by name of the kernel.
    """

    def __init__(self, kernel: Any, binaries: dict[str, Any]) -> None:
        self._kernel = kernel
        self._binaries = binaries

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, num_warps: int = 4, enable_fp_fusion: bool = True, **named: Any) -> None:
        names = self._kernel.arg_names
        given = dict(zip(names, args, strict=False)) | named
        assert set(given) == set(names)
        types = {name: self._type(given[name]) for name in names if not name.isupper()}
        constants = {name: given[name] for name in names if types.get(name, "constexpr") == "constexpr"}
        types = {name: kind for name, kind in types.items() if name not in constants}
        options = {"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion}
        self._binaries[self._kernel.__name__] = compiled(self._kernel, types, constants, **options)

    @staticmethod
    def _type(value: Any) -> str:
        if value is None or (isinstance(value, int) and value == 1):
            return "constexpr"  # as Triton specialises such arguments
        return TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
