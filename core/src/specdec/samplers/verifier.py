"""Base class of samplers that decide by a verification scheme."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.decide import decide
from specdec.samplers.device_kernels import judge_on_device
from specdec.samplers.emission import accept_uniforms, draw_tokens
from specdec.samplers.law import Law
from specdec.samplers.target_probs import raise_not_numbers
from specdec.samplers.trial import Trial, make_trial
from specdec.samplers.verdicts import greedy_verdict, verdict_of, with_greedy_rows


class Verifier(Sampler):
    """Decides by a verification scheme, with noise keyed by (seed, sample, tokens committed when the step began, node).

    The same seed gives the same text with the same proposer and configuration, whatever else is in the batch.
    Another proposer gives another text from the same distribution.
    """

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})
    kernel: ClassVar[str | None] = None
    """The operation of specdec-kernels that decides chains by the same scheme; None if there is none."""

    def verify(self, scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        if not batch.num_nodes or (batch.is_all_greedy and self.is_greedy_exact):
            return greedy_verdict(scores, draft)
        if self.kernel is not None:
            verdict = judge_on_device(self.kernel, scores, draft, batch)
            if verdict is not None:
                return verdict
        uses_q = Capability.DRAFT_PROBS in self.capabilities
        trial = make_trial(scores, draft, batch, uses_q=uses_q)
        law = self.law(trial)
        uniforms = accept_uniforms(batch, trial.width, trial.probs.device)
        stop = decide(law, uniforms, trial)
        stops, tokens = draw_tokens(law.emission(stop), stop, batch)
        if min(tokens) < 0:
            raise_not_numbers()
        verdict = verdict_of(draft, stops, tokens)
        if draft.parents is None or not self.is_greedy_exact:
            return verdict
        return with_greedy_rows(verdict, scores, draft, batch)

    @abstractmethod
    def law(self, trial: Trial) -> Law:
        """Return the verification scheme of a batch of drafts, before any draw."""
