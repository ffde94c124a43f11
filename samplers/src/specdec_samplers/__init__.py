"""The samplers `probabilistic`, `block`, `typical` and `synthetic` of specdec, and what a backend's verification is made of."""

from specdec_samplers.block import BlockSampler
from specdec_samplers.draft_probs import ProbArrays, normalised
from specdec_samplers.emission import accept_uniforms, draw_tokens
from specdec_samplers.probabilistic import ProbabilisticSampler
from specdec_samplers.scheme import Rule, Scheme
from specdec_samplers.synthetic import SyntheticSampler
from specdec_samplers.trial import Trial, make_trial
from specdec_samplers.typical import TypicalSampler
from specdec_samplers.verdicts import verdict_of, with_greedy_rows

__all__ = [
    "BlockSampler",
    "ProbArrays",
    "ProbabilisticSampler",
    "Rule",
    "Scheme",
    "SyntheticSampler",
    "Trial",
    "TypicalSampler",
    "accept_uniforms",
    "draw_tokens",
    "make_trial",
    "normalised",
    "verdict_of",
    "with_greedy_rows",
]
