"""EAGLE, EAGLE-2 and EAGLE-3: a head of one or a few layers drafts from the target's hidden states.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_plugin_eagle.config import Eagle3Config, EagleConfig
    from specdec_plugin_eagle.heads import Eagle3Head, EagleHead
    from specdec_plugin_eagle.proposer import Eagle3Proposer, EagleProposer
    from specdec_plugin_eagle.saving import save_eagle, save_eagle3
    from specdec_plugin_eagle.settings import EagleSettings

__all__ = [
    "Eagle3Config",
    "Eagle3Head",
    "Eagle3Proposer",
    "EagleConfig",
    "EagleHead",
    "EagleProposer",
    "EagleSettings",
    "save_eagle",
    "save_eagle3",
]

_HOME = {
    "Eagle3Config": "specdec_plugin_eagle.config",
    "EagleConfig": "specdec_plugin_eagle.config",
    "Eagle3Head": "specdec_plugin_eagle.heads",
    "EagleHead": "specdec_plugin_eagle.heads",
    "Eagle3Proposer": "specdec_plugin_eagle.proposer",
    "EagleProposer": "specdec_plugin_eagle.proposer",
    "save_eagle": "specdec_plugin_eagle.saving",
    "save_eagle3": "specdec_plugin_eagle.saving",
    "EagleSettings": "specdec_plugin_eagle.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_plugin_eagle' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
