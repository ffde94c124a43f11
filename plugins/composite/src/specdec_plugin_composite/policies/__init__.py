"""Policies that choose by the drafts alone; `choose` measures."""

from specdec_plugin_composite.policies.cascade import Cascade
from specdec_plugin_composite.policies.extend import Extend
from specdec_plugin_composite.policies.longest import Longest
from specdec_plugin_composite.policies.merge import Merge

__all__ = ["Cascade", "Extend", "Longest", "Merge"]
