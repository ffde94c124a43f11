"""Base class of samplers that decide by a verification scheme."""

from __future__ import annotations

from abc import abstractmethod

from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.built_in import BuiltIn
from specdec.samplers.decide import decide
from specdec.samplers.emission import accept_uniforms, draw_tokens
from specdec.samplers.scheme import Scheme
from specdec.samplers.target_probs import raise_not_numbers
from specdec.samplers.trial import Trial, make_trial
from specdec.samplers.verdicts import greedy_verdict, verdict_of, with_greedy_rows


class Verifier(BuiltIn):
    """Decides by a verification scheme, with noise keyed by (seed, sample, tokens committed when the step began, node).

    The same seed gives the same text with the same proposer and configuration, whatever else is in the batch.
    Another proposer gives another text from the same distribution.
    """

    def verify_with_torch(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """See `BuiltIn.verify_with_torch`."""
        if not batch.num_nodes or (batch.is_all_greedy and self.is_greedy_exact):
            return greedy_verdict(scores, draft)
        uses_q = Capability.DRAFT_PROBS in self.capabilities
        trial = make_trial(scores, draft, batch, uses_q=uses_q)
        scheme = self.scheme(trial)
        uniforms = accept_uniforms(batch, trial.width, trial.probs.device)
        stop = decide(scheme, uniforms, trial)
        stops, tokens = draw_tokens(scheme.emission(stop), stop, batch)
        if min(tokens) < 0:
            raise_not_numbers()
        verdict = verdict_of(draft, stops, tokens)
        if draft.parents is None or not self.is_greedy_exact:
            return verdict
        return with_greedy_rows(verdict, scores, draft, batch)

    @abstractmethod
    def scheme(self, trial: Trial) -> Scheme:
        """Return the verification scheme of a batch of drafts, before any draw."""
