"""Loads targets, and refuses those that cannot be served correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_runtime.loading.admission import check_rope
    from specdec_runtime.loading.checkpoint import SafetensorsReader
    from specdec_runtime.loading.draft import load_draft
    from specdec_runtime.loading.target import LoadedTarget, load_target

__all__ = [
    "LoadedTarget",
    "SafetensorsReader",
    "check_rope",
    "load_draft",
    "load_target",
]

__getattr__ = lazily(__name__)
