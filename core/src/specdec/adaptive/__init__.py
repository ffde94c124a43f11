"""Drafting as far as it pays: measures what drafts cost and bring, and decides again while the engine runs.

`BatchSizeCosts` has what a depth costs and brings, by acceptance at each position, `RequestAcceptance` how a request differs
from that. `AdaptiveDepth` chooses the depth with the highest throughput, `Backoff` when to try again. `ExpectedTokens` drafts
tokens that rules force or callers predict, without a proposer. `StepCosts` measures steps for both; proposers that choose
among others take it, and `RequestAcceptance`, too.
"""

from specdec.adaptive.adaptive_depth import AdaptiveDepth
from specdec.adaptive.backoff import Backoff
from specdec.adaptive.expected_tokens import ExpectedTokens
from specdec.adaptive.measured_step import DraftedFor, MeasuredStep
from specdec.adaptive.request_acceptance import RequestAcceptance, Spread
from specdec.adaptive.step_costs import ByCount, StepCosts

__all__ = [
    "AdaptiveDepth",
    "Backoff",
    "ByCount",
    "DraftedFor",
    "ExpectedTokens",
    "MeasuredStep",
    "RequestAcceptance",
    "Spread",
    "StepCosts",
]
