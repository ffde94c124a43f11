"""Loads targets, and refuses those that cannot be served correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.loading.admission import check_rope as check_rope
    from specdec.loading.checkpoint import SafetensorsReader as SafetensorsReader
    from specdec.loading.draft import load_draft as load_draft
    from specdec.loading.target import LoadedTarget as LoadedTarget
    from specdec.loading.target import fingerprint as fingerprint
    from specdec.loading.target import load_target as load_target
    from specdec.loading.target import locate as locate

__all__ = [
    "LoadedTarget",
    "SafetensorsReader",
    "check_rope",
    "fingerprint",
    "load_draft",
    "load_target",
    "locate",
]

__getattr__ = lazily(
    __name__,
    {
        "admission": "check_rope",
        "checkpoint": "SafetensorsReader",
        "draft": "load_draft",
        "target": "LoadedTarget fingerprint load_target locate",
    },
)
