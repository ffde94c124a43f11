"""The backend `layers`: decoder layers run as a few torch operations with joined projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec import hookimpl

if TYPE_CHECKING:
    from specdec.interfaces import Backend


@hookimpl
def specdec_register_backends() -> list[type[Backend]]:
    """Return the backend."""
    from specdec_kernels.layers.backend import LayersBackend

    return [LayersBackend]
