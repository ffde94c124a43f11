"""Selects whether an operation runs as its reference or as its Triton kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from importlib.util import find_spec

import torch

VARIABLE = "SPECDEC_KERNELS"
"""Environment variable with the name of the backend to use."""


class Backend(StrEnum):
    """Implementation of an operation."""

    REFERENCE = "reference"
    """Plain torch, on any device."""

    TRITON = "triton"
    """A Triton kernel, on a GPU, or under Triton's interpreter."""


_chosen: ContextVar[Backend | None] = ContextVar("specdec_kernels_backend", default=None)


@contextmanager
def use_backend(backend: Backend | str) -> Iterator[None]:
    """Run every operation within the `with` block on one backend, regardless of tensors and environment.

    Raises:
        ValueError: if the backend does not exist.
    """
    token = _chosen.set(_named(backend, "use_backend"))
    try:
        yield
    finally:
        _chosen.reset(token)


def backend_for(tensor: torch.Tensor) -> Backend:
    """Return the backend for an operation on `tensor`: from `use_backend`, else the environment, else the device.

    Raises:
        ValueError: if the environment variable does not name a backend.
        RuntimeError: if Triton was chosen and is not installed.
    """
    wanted = _chosen.get()
    if wanted is None and VARIABLE in os.environ:
        wanted = _named(os.environ[VARIABLE], VARIABLE)
    if wanted is None:
        return Backend.TRITON if tensor.is_cuda and _has_triton() else Backend.REFERENCE
    if wanted is Backend.TRITON and not _has_triton():
        raise RuntimeError("the Triton backend was chosen and Triton is not installed: pip install triton")
    return wanted


def _named(name: str, place: str) -> Backend:
    try:
        return Backend(name)
    except ValueError:
        raise ValueError(
            f"{place}: there is no backend {name!r}; backends are {', '.join(Backend)}"
        ) from None


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
