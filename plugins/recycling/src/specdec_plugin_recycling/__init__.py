"""Token recycling: drafts trees of the ids that the target last held for probable after each token."""

from specdec_plugin_recycling.config import RecyclingConfig
from specdec_plugin_recycling.proposer import RecyclingProposer

__all__ = ["RecyclingConfig", "RecyclingProposer"]
