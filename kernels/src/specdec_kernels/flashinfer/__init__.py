"""The backend `flashinfer`: attention by FlashInfer's kernels, where `attention_backend="flashinfer"` asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec import hookimpl

if TYPE_CHECKING:
    from specdec.interfaces import Backend


@hookimpl
def specdec_register_backends() -> list[type[Backend]]:
    """Return the backend."""
    from specdec_kernels.flashinfer.backend import FlashInferBackend

    return [FlashInferBackend]
