"""Suffix decoding: draft what followed the same tokens in the request's text or in earlier responses.

Names load when they are first used: its command shows its options without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_plugin_suffix.config import SuffixConfig as SuffixConfig
    from specdec_plugin_suffix.proposer import SuffixProposer as SuffixProposer

__all__ = ["SuffixConfig", "SuffixProposer"]

_HOME = {
    "SuffixConfig": "specdec_plugin_suffix.config",
    "SuffixProposer": "specdec_plugin_suffix.proposer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_plugin_suffix' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
