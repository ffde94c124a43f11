"""The backend `triton`: paged attention, verification on the device, and passes and draft loops captured in graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec import hookimpl

if TYPE_CHECKING:
    from specdec.interfaces import Backend


@hookimpl
def specdec_register_backends() -> list[type[Backend]]:
    """Return the backend."""
    from specdec_kernels.cuda.backend import TritonBackend

    return [TritonBackend]
