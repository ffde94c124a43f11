"""glance: a draft head of one layer, and its training."""

from specdec_glance.head import GlanceHead
from specdec_glance.proposer import Glance
from specdec_glance.train import train

__all__ = ["Glance", "GlanceHead", "train"]
