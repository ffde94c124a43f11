"""Asks those backends that run models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from specdec.interfaces import Backend, Declined
from specdec_runtime.interfaces.backend import ModelBackend

Offer = TypeVar("Offer")


def of_models(ask: Callable[[ModelBackend], Offer | Declined]) -> Callable[[Backend], Offer | Declined]:
    """Return a question to any backend, of which those that run no models decline."""

    def ask_any(backend: Backend) -> Offer | Declined:
        if isinstance(backend, ModelBackend):
            return ask(backend)
        return Declined("it runs no models", is_elsewhere=True)

    return ask_any
