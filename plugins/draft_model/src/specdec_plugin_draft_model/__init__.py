"""Draft models: a smaller causal language model proposes, on a paged cache of its own."""

from specdec_plugin_draft_model.config import DraftModelConfig
from specdec_plugin_draft_model.proposer import DraftModelProposer

__all__ = ["DraftModelConfig", "DraftModelProposer"]
