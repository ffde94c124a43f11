"""Every kernel alone, compared with its bandwidth bound and with plain torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import torch

import specdec_kernels.triton as specdec_kernels
from device.bandwidth import Bandwidth
from device.cases import CASES
from device.clock import median_ms
from device.kernel_case import KernelCase, Problem
from device.sizes import Sizes
from specdec_kernels.triton.dispatch import backend_for


@dataclass(frozen=True)
class KernelRow:
    """One case, measured."""

    op: str
    case: str
    backend: str
    """`triton`, or `reference`, whose times say nothing about the kernel."""
    num_bytes: int
    op_ms: float
    torch: str
    """The operation it is compared with."""
    torch_ms: float
    bound_ms: float | None
    """Time to move the bytes; None if the bandwidth is unknown."""
    is_equal: bool
    """Whether both gave the same numbers. If not, the times are meaningless."""

    @property
    def share_of_bandwidth(self) -> float | None:
        """The bound divided by the time."""
        return None if self.bound_ms is None else self.bound_ms / self.op_ms


@dataclass(frozen=True)
class KernelResult:
    """All cases."""

    sizes: Sizes
    rows: list[KernelRow]
    skipped: list[str]
    """Cases that did not fit into the time budget."""
    without_case: list[str]
    """Operations of the package without a case."""

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        sizes = {**asdict(self.sizes), "dtype": str(self.sizes.dtype)[6:], "device": self.sizes.device.type}
        rows = [{**asdict(row), "share_of_bandwidth": row.share_of_bandwidth} for row in self.rows]
        return {"sizes": sizes, "rows": rows, "skipped": self.skipped, "without_case": self.without_case}


def run_kernels(
    sizes: Sizes,
    bandwidth: Bandwidth | None,
    *,
    num_calls: int,
    seconds: float,
    cases: Sequence[KernelCase] = CASES,
) -> KernelResult:
    """Measure every case.

    Args:
        sizes: of the problems.
        bandwidth: of the device.
        num_calls: timed calls of each.
        seconds: after which no further case is started.
        cases: what to measure.
    """
    end = perf_counter() + seconds
    rows, skipped = [], []
    for case in cases:
        if perf_counter() >= end:
            skipped.append(f"{case.op}: {case.name}")
            continue
        print(f"{case.op}: {case.name}", file=sys.stderr, flush=True)
        rows.append(_measure(case, sizes, num_calls, bandwidth))
    return KernelResult(sizes, rows, skipped, sorted(ops() - {case.op for case in cases}))


def ops() -> set[str]:
    """Return the installed operations, which are the folders of the package."""
    folder = Path(specdec_kernels.__file__).parent
    return {file.parent.name for file in folder.glob("*/kernel.py")}


def _measure(case: KernelCase, sizes: Sizes, num_calls: int, bandwidth: Bandwidth | None) -> KernelRow:
    ours = [tensor.clone() for tensor in _problem(case, sizes).call()]
    problem = _problem(case, sizes)  # recreated, since some operations write to their arguments
    theirs = [tensor.clone() for tensor in problem.by_torch()]
    return KernelRow(
        op=case.op,
        case=case.name,
        backend=str(backend_for(torch.empty(0, device=sizes.device))),
        num_bytes=problem.num_bytes,
        op_ms=median_ms(problem.call, sizes.device, num_calls),
        torch=problem.torch_name,
        torch_ms=median_ms(problem.by_torch, sizes.device, num_calls),
        bound_ms=None if bandwidth is None else bandwidth.ms(problem.num_bytes),
        is_equal=all(is_near(a, b, problem.tolerance) for a, b in zip(ours, theirs, strict=True)),
    )


def _problem(case: KernelCase, sizes: Sizes) -> Problem:
    torch.manual_seed(0)
    return case.make(sizes)


def is_near(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    """Return whether two tensors agree: infinities exactly, numbers within a share of the largest one."""
    if tolerance == 0.0 or not a.is_floating_point():
        return torch.equal(a, b)
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a[~finite], b[~finite]):
        return False
    if not bool(finite.any()):
        return True
    difference = (a[finite].double() - b[finite].double()).abs().amax()
    return bool(difference <= tolerance * b[finite].double().abs().amax())
