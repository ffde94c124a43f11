"""Draft models: a smaller causal language model proposes, with its own paged cache."""

from specdec_plugin_draft_model.config import DraftModelConfig
from specdec_plugin_draft_model.proposer import DraftModelProposer

__all__ = ["DraftModelConfig", "DraftModelProposer"]
