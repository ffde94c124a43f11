"""What the kernels that are launched on the pretend device take of a GPU, from machine code for it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from torch.utils._pytree import tree_map
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.runtime.jit import create_function_from_signature

from pretend import kernels
from pretend.tensor import held

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
ARCHITECTURES = {80: 163, 90: 227, 100: 227, 120: 99}
"""Compute capabilities, and the KiB of shared memory that a block may take there."""
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes."""

    registers: int
    """Of a thread."""
    stack_bytes: int
    """Of a thread: what registers have no room for is spilled there."""
    shared_bytes: int
    """Of a block."""


@dataclass(frozen=True)
class Launch:
    """One launch of each kernel that Triton compiles: arguments are those of the launch, with their alignment."""

    kernel: Any
    args: Sequence[Any]
    named: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The kernel's."""
        return str(self.kernel.__name__).removesuffix("_kernel")

    def compiled(self, capability: int) -> Resources:
        """Compile it as Triton does for this launch on a GPU of a compute capability."""
        target = GPUTarget("cuda", capability, 32)
        backend = CUDABackend(target)
        binder = create_function_from_signature(self.kernel.signature, self.kernel.params, backend)
        named = {name: value for name, value in self.named.items() if name not in ("grid", "warmup")} | {
            "debug": False
        }
        bound, specialization, options = binder(*self.args, **named)
        options, signature, constants, attributes = self.kernel._pack_args(
            backend, named, bound, specialization, options
        )
        source = ASTSource(self.kernel, signature, constants, attributes)
        binary = triton.compile(source, target=target, options=options.__dict__)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(binary.asm["cubin"])
            file.flush()
            command = [CUOBJDUMP, "--dump-resource-usage", file.name]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (usage,) = _USAGE.findall(told)
        return Resources(int(usage[0]), int(usage[1]), binary.metadata.shared)


@contextmanager
def launched() -> Iterator[list[Launch]]:
    """Collect one launch of each kernel; to be entered before the device."""
    found: list[Launch] = []
    seen = set[tuple[object, ...]]()
    variant_of = kernels.variant_of

    def noting(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[object, ...]:
        variant = variant_of(kernel, args, named)
        if variant not in seen:
            seen.add(variant)
            found.append(Launch(kernel, tree_map(held, args), dict(named)))
        return variant

    with patch.object(kernels, "variant_of", noting):
        yield found
