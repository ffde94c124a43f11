"""EAGLE, EAGLE-2 and EAGLE-3: a head of one or a few layers drafts from the target's hidden states.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

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


__getattr__ = lazily(__name__)
