"""Serves specdec over HTTP, with the OpenAI interface.

Names are loaded on first use, so a command line that only shows its options does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_server.app import create_app
    from specdec_server.settings import Settings

__all__ = ["Settings", "create_app"]


__getattr__ = lazily(__name__)
