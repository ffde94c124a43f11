"""What is expected next in one sample, without a proposer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from specdec.adaptive.prediction import MOST_DRAFTED, Prediction, PredictionCursor
from specdec.adaptive.row_costs import RowCosts
from specdec.interfaces.grammar import GrammarState
from specdec.sampling_params import SamplingParams
from specdec.text.reasoning import Reasoning


class ExpectedTokens:
    """What is expected next in one sample: the tokens that its rules force, or else those that its caller predicts.

    A likely token is drafted where its row of the pass is likely to pay, by measurement. Drafts are point masses that depend
    on committed tokens alone, so every sampler verifies them without loss.

    Args:
        params: the request's parameters.
        grammar: the sample's grammar, or None.
        prediction: the output that its caller predicts, or nothing.
        end_ids: the tokens that may end the sample, which `min_tokens` forbids.
        costs: what rows cost in this engine.
        reasoning: of the sample, if it has a budget.
    """

    name: str = ""
    """What the last draft is from, shown as its proposer."""
    num_drafts: int = 0
    """Number of verified drafts."""
    num_accepted: int = 0
    """Number of their accepted tokens."""
    num_accepted_predicted: int = 0
    """Those of the caller's prediction."""
    num_rejected_predicted: int = 0
    """Tokens of the prediction that were not accepted."""

    def __init__(
        self,
        params: SamplingParams,
        grammar: GrammarState | None,
        prediction: Sequence[int],
        end_ids: Collection[int],
        costs: RowCosts,
        reasoning: Reasoning | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._params, self._grammar = params, grammar
        self._cursor = PredictionCursor(_prediction(tuple(prediction))) if prediction else None
        self._end_ids, self._costs = end_ids, costs

    def draft(self, num_output: int, room: int, num_sequences: int) -> list[int]:
        """Return the tokens expected next, at most `room`.

        Args:
            num_output: number of committed output tokens.
            room: most tokens that fit the sample.
            num_sequences: number of sequences that run.
        """
        most = max(0, min(room, self._params.cap_speculation(MOST_DRAFTED)))
        if not most:
            return []
        self.name = "forced"
        forced = list(self._reasoning.forced()[:most]) if self._reasoning is not None else []
        forced = forced or self._only_id(num_output, most)
        if not forced and self._grammar is not None:
            forced = self._grammar.forced(most, self._costs.least_chance(num_sequences))
        if forced or self._cursor is None:
            return forced
        self.name = "prediction"
        return self._cursor.draft(most)

    def advance(self, output: Sequence[int], num_new: int) -> None:
        """Take in the output, whose last `num_new` tokens are new."""
        if self._reasoning is not None:
            self._reasoning.follow(output)
        if self._cursor is not None:
            self._cursor.advance(output, num_new)

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Record that the last draft was verified."""
        self.num_drafts += 1
        self.num_accepted += num_accepted
        if self._cursor is not None and self.name == "prediction":
            self._cursor.observe(num_drafted, num_accepted)
            self.num_accepted_predicted += num_accepted
            self.num_rejected_predicted += num_drafted - num_accepted

    def observe_step(self, num_sequences: int, num_nodes: int, seconds: float) -> None:
        """Record, for all samples, what a step cost in which all sequences decode; told to one of them."""
        self._costs.observe(num_sequences, num_nodes, seconds)

    def _only_id(self, num_output: int, most: int) -> list[int]:
        """Return the one id that `allowed_token_ids` and `min_tokens` leave, as often as they leave it alone."""
        allowed = set(self._params.allowed_token_ids or ())
        if len(allowed) > 1:
            allowed -= set(self._end_ids)
            most = min(most, self._params.min_tokens - num_output)
        return list(allowed) * most if len(allowed) == 1 else []


@lru_cache(16)
def _prediction(token_ids: tuple[int, ...]) -> Prediction:
    """Return a predicted output; the samples of a request share it."""
    return Prediction(token_ids)
