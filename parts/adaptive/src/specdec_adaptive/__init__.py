"""Drafting as far as it pays: measures what drafts cost and bring, and decides again while the engine runs.

`BatchSizeCosts` has what a depth costs and brings, by acceptance at each position, `RequestAcceptance` how a request differs
from that. `AdaptiveDepth` chooses the depth with the highest throughput, `Backoff` when to try again: part `draft_depth` of
specdec. `MeasuredExpectations` drafts tokens that rules force or callers predict, without a proposer: part `expected_tokens`.
`StepCosts` measures steps for both; proposers that choose among others take it, and `RequestAcceptance`, too.
"""

from specdec_adaptive.adaptive_depth import AdaptiveDepth
from specdec_adaptive.backoff import Backoff
from specdec_adaptive.expected_tokens import MeasuredExpectations
from specdec_adaptive.request_acceptance import RequestAcceptance, Spread
from specdec_adaptive.step_costs import ByCount, StepCosts

__all__ = [
    "AdaptiveDepth",
    "Backoff",
    "ByCount",
    "MeasuredExpectations",
    "RequestAcceptance",
    "Spread",
    "StepCosts",
]
