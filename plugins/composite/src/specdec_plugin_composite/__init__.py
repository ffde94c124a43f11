"""Several proposers as one, by a policy."""

from specdec_plugin_composite.auto import AutoConfig, AutoProposer
from specdec_plugin_composite.config import CompositeConfig, MemberConfig
from specdec_plugin_composite.member import Member
from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.proposer import CompositeProposer
from specdec_plugin_composite.round import Choice, Round, Unseen

__all__ = [
    "AutoConfig",
    "AutoProposer",
    "Choice",
    "CompositeConfig",
    "CompositeProposer",
    "Member",
    "MemberConfig",
    "Offer",
    "Policy",
    "Round",
    "Unseen",
]
