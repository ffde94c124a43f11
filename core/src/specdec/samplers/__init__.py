"""Built-in samplers, and the parts that a backend's verification is made of."""

from specdec.samplers.block import BlockSampler
from specdec.samplers.draft_probs import ProbArrays, normalised
from specdec.samplers.emission import accept_uniforms, draw_tokens
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.strict import StrictSampler
from specdec.samplers.target_probs import raise_not_numbers
from specdec.samplers.trial import Trial, make_trial
from specdec.samplers.verdicts import verdict_of, with_greedy_rows

__all__ = [
    "BlockSampler",
    "ProbArrays",
    "ProbabilisticSampler",
    "Rule",
    "Scheme",
    "StrictSampler",
    "Trial",
    "accept_uniforms",
    "draw_tokens",
    "make_trial",
    "normalised",
    "raise_not_numbers",
    "verdict_of",
    "with_greedy_rows",
]
