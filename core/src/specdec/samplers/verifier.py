"""Base class of samplers that decide by a verification scheme."""

from __future__ import annotations

from abc import abstractmethod

from specdec.interfaces.capability import Capability
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.decision import decide
from specdec.samplers.emission import accept_uniforms, draw_tokens
from specdec.samplers.padded_drafts import PaddedDrafts, pad_drafts
from specdec.samplers.paths import greedy_verdict, raise_not_numbers
from specdec.samplers.scheme import Scheme
from specdec.samplers.torch_sampler import TorchSampler
from specdec.samplers.verdicts import verdict_of, with_greedy_rows


class Verifier(TorchSampler):
    """Decides by a verification scheme, with noise keyed by (seed, sample, tokens committed when the step began, node).

    The same seed gives the same text with the same proposer and configuration, whatever else is in the batch.
    Another proposer gives another text from the same distribution.
    """

    def verify_with_torch(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        """See `TorchSampler.verify_with_torch`."""
        if not batch.num_nodes or (batch.is_all_greedy and self.is_greedy_exact):
            return greedy_verdict(scores, batch)
        uses_q = Capability.DRAFT_PROBS in self.capabilities
        padded = pad_drafts(scores, batch, uses_q=uses_q)
        scheme = self.scheme(padded)
        uniforms = accept_uniforms(batch, padded.width, padded.probs.device)
        stop = decide(scheme, uniforms, padded)
        stops, tokens = draw_tokens(scheme.emission(stop), stop, batch)
        if min(tokens) < 0:
            raise_not_numbers()
        verdict = verdict_of(batch, stops, tokens)
        if batch.parents is None or not self.is_greedy_exact:
            return verdict
        return with_greedy_rows(verdict, scores, batch)

    @abstractmethod
    def scheme(self, padded: PaddedDrafts) -> Scheme:
        """Return the verification scheme of a batch of drafts, before any draw."""
