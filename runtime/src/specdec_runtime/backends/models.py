"""The questions about models, for any backend."""

from __future__ import annotations

from specdec.interfaces import Backend
from specdec_runtime.interfaces.backend import ModelBackend


class _NoModels(ModelBackend):
    """Stands for a backend that runs no models: it declines."""


def of_models(backend: Backend) -> ModelBackend:
    """Return a backend as one that may be asked about models."""
    return backend if isinstance(backend, ModelBackend) else _NoModels()
