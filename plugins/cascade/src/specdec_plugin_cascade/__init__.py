"""Several proposers as one: each request's draft comes from the first whose draft is expected to be accepted long enough."""

from specdec_plugin_cascade.config import CascadeConfig, Member
from specdec_plugin_cascade.proposer import CascadeProposer

__all__ = ["CascadeConfig", "CascadeProposer", "Member"]
