"""Several proposers as one: each request's draft comes from whichever is expected to be right longest."""

from specdec_plugin_cascade.config import CascadeConfig, Member
from specdec_plugin_cascade.proposer import CascadeProposer

__all__ = ["CascadeConfig", "CascadeProposer", "Member"]
