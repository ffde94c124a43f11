"""Adaptive drafting: measures how much drafting pays off, and decides again while the engine runs.

`BatchSizeCosts` has what a depth costs and brings, by acceptance at each position, `RequestAcceptance` how a request differs
from that. `AdaptiveDepth` chooses the depth with the highest throughput, `Backoff` when to try again.
Part `draft_depth` of specdec.
"""

from specdec_adaptive.adaptive_depth import AdaptiveDepth
from specdec_adaptive.backoff import Backoff

__all__ = ["AdaptiveDepth", "Backoff"]
