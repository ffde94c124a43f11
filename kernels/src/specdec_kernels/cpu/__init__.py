"""The backend `cpu`: compiled passes, draft loops, attention, products, verification and noise.

`compiled` keeps what numba compiles, `loops` holds the loops of a pass, `rows` and `verification` those of a step. `form`
runs whole passes of a model or head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec import hookimpl

if TYPE_CHECKING:
    from specdec.interfaces import Backend


@hookimpl
def specdec_register_backends() -> list[type[Backend]]:
    """Return the backend."""
    from specdec_kernels.cpu.backend import CpuBackend

    return [CpuBackend]
