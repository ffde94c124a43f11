"""Small heads on the target's last hidden state: MLP speculators, with a chain of heads, and Medusa, with independent heads."""

from specdec_plugin_mlp.medusa.checkpoint import load_medusa
from specdec_plugin_mlp.medusa.config import MedusaConfig
from specdec_plugin_mlp.medusa.layout import MedusaLayout
from specdec_plugin_mlp.medusa.model import Medusa
from specdec_plugin_mlp.medusa.proposer import MedusaProposer
from specdec_plugin_mlp.mlp_speculator.checkpoint import load_mlp_speculator, save_mlp_speculator
from specdec_plugin_mlp.mlp_speculator.config import MLPSpeculatorConfig
from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout
from specdec_plugin_mlp.mlp_speculator.model import MLPSpeculator
from specdec_plugin_mlp.mlp_speculator.proposer import MLPSpeculatorProposer

__all__ = [
    "MLPSpeculator",
    "MLPSpeculatorConfig",
    "MLPSpeculatorLayout",
    "MLPSpeculatorProposer",
    "Medusa",
    "MedusaConfig",
    "MedusaLayout",
    "MedusaProposer",
    "load_medusa",
    "load_mlp_speculator",
    "save_mlp_speculator",
]
