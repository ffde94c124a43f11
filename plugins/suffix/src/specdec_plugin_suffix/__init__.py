"""Suffix decoding: drafts the tokens that followed the same suffix in the request's text or in earlier responses.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_plugin_suffix.config import SuffixConfig
    from specdec_plugin_suffix.proposer import SuffixProposer

__all__ = ["SuffixConfig", "SuffixProposer"]

_HOME = {
    "SuffixConfig": "specdec_plugin_suffix.config",
    "SuffixProposer": "specdec_plugin_suffix.proposer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_plugin_suffix' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
