"""The samplers of specdec, and what other samplers that verify with torch, and the verifiers of backends, are made of.

`strict` verifies by itself. A `Verifier`, such as `probabilistic` and `block`, computes a scheme (`Scheme`: a threshold for
every node, and the weights of the token after the accepted path) from p and q alone (`PaddedDrafts`), and then draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.interfaces.row_block import node_depths
    from specdec.samplers.block import BlockSampler, block_scheme
    from specdec.samplers.decision import decide
    from specdec.samplers.draft_probs import DraftProbs, DraftVocabulary, ProbArrays
    from specdec.samplers.emission import accept_uniforms, draw_tokens, node_words
    from specdec.samplers.padded_drafts import PaddedDrafts, node_rows, pad_drafts
    from specdec.samplers.paths import greedy_verdict, path_to, raise_not_numbers
    from specdec.samplers.probabilistic import ProbabilisticSampler
    from specdec.samplers.rejection import rejection_scheme
    from specdec.samplers.scheme import Rule, Scheme
    from specdec.samplers.strict import StrictSampler
    from specdec.samplers.target_distribution import target_probs
    from specdec.samplers.torch_sampler import TorchSampler
    from specdec.samplers.verdicts import verdict_of, with_greedy_rows
    from specdec.samplers.verifier import Verifier

__all__ = [
    "BlockSampler",
    "DraftProbs",
    "DraftVocabulary",
    "PaddedDrafts",
    "ProbArrays",
    "ProbabilisticSampler",
    "Rule",
    "Scheme",
    "StrictSampler",
    "TorchSampler",
    "Verifier",
    "accept_uniforms",
    "block_scheme",
    "decide",
    "draw_tokens",
    "greedy_verdict",
    "node_depths",
    "node_rows",
    "node_words",
    "pad_drafts",
    "path_to",
    "raise_not_numbers",
    "rejection_scheme",
    "target_probs",
    "verdict_of",
    "with_greedy_rows",
]

__getattr__ = lazily(__name__)
