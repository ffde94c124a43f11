"""DFlash: a block-diffusion head drafts a whole block in one pass from the target's hidden states."""

from specdec_plugin_dflash.config import DFlashConfig
from specdec_plugin_dflash.forcing import forced_logits, run_blocks
from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.proposer import DFlashProposer
from specdec_plugin_dflash.saving import save_dflash
from specdec_plugin_dflash.settings import DFlashSettings, default_layers
from specdec_plugin_dflash.views import View

__all__ = [
    "DFlashConfig",
    "DFlashHead",
    "DFlashProposer",
    "DFlashSettings",
    "View",
    "default_layers",
    "forced_logits",
    "run_blocks",
    "save_dflash",
]
