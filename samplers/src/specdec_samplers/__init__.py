"""The samplers `probabilistic`, `block`, `typical` and `synthetic` of specdec, and what a backend's verification is made of."""

from specdec_samplers.block import BlockSampler, block_scheme
from specdec_samplers.decide import decide
from specdec_samplers.draft_probs import DraftProbs, DraftVocabulary, ProbArrays
from specdec_samplers.emission import accept_uniforms, draw_tokens, node_words
from specdec_samplers.probabilistic import ProbabilisticSampler
from specdec_samplers.rejection import rejection_scheme
from specdec_samplers.scheme import Rule, Scheme
from specdec_samplers.synthetic import SyntheticSampler
from specdec_samplers.target_probs import target_probs
from specdec_samplers.trial import Trial, make_trial, node_rows
from specdec_samplers.typical import TypicalSampler
from specdec_samplers.verdicts import verdict_of, with_greedy_rows

__all__ = [
    "BlockSampler",
    "DraftProbs",
    "DraftVocabulary",
    "ProbArrays",
    "ProbabilisticSampler",
    "Rule",
    "Scheme",
    "SyntheticSampler",
    "Trial",
    "TypicalSampler",
    "accept_uniforms",
    "block_scheme",
    "decide",
    "draw_tokens",
    "make_trial",
    "node_rows",
    "node_words",
    "rejection_scheme",
    "target_probs",
    "verdict_of",
    "with_greedy_rows",
]
