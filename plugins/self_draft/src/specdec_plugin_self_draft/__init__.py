"""Self-drafting: a cheaper form of the target proposes, on the target's own cache."""

from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.proposer import SelfDraftProposer

__all__ = ["SelfDraftConfig", "SelfDraftProposer"]
