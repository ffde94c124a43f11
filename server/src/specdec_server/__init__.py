"""Serves specdec over HTTP, with the OpenAI interface.

Names are loaded on first use, so a command line that only shows its options does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_server.app import create_app
    from specdec_server.settings import Settings

__all__ = ["Settings", "create_app"]

_HOME = {"Settings": "specdec_server.settings", "create_app": "specdec_server.app"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_server' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
