"""Multi-token prediction: layers of the target's own checkpoint draft from its hidden states."""

from specdec_plugin_mtp.config import MtpConfig
from specdec_plugin_mtp.head import MtpHead, MtpStage
from specdec_plugin_mtp.layouts import DEEPSEEK, ERNIE, MIMO, QWEN3_NEXT, Layout
from specdec_plugin_mtp.proposer import MtpProposer
from specdec_plugin_mtp.saving import add_mtp_layers

__all__ = [
    "DEEPSEEK",
    "ERNIE",
    "MIMO",
    "QWEN3_NEXT",
    "Layout",
    "MtpConfig",
    "MtpHead",
    "MtpProposer",
    "MtpStage",
    "add_mtp_layers",
]
