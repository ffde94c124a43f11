"""What is expected next in one sample, without a proposer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import ClassVar

from specdec import SamplingParams
from specdec.interfaces import Expectations, ExpectedTokens, GrammarState
from specdec_adaptive.prediction import MOST_DRAFTED, Prediction, PredictionCursor
from specdec_adaptive.row_costs import RowCosts


class MeasuredExpectations(Expectations):
    """Drafts a likely token where its row of the pass is likely to pay, by measurement."""

    name: ClassVar[str] = "expected_tokens"

    def __init__(self) -> None:
        self._costs = RowCosts()

    def of_sample(
        self,
        params: SamplingParams,
        grammar: GrammarState | None,
        prediction: Sequence[int],
        end_ids: Collection[int],
    ) -> ExpectedTokens:
        """See `Expectations.of_sample`."""
        cursor = PredictionCursor(_prediction(tuple(prediction))) if prediction else None
        return ForcedOrPredicted(params, grammar, cursor, end_ids, self._costs)


class ForcedOrPredicted(ExpectedTokens):
    """Drafts the tokens that a sample's rules force, or else those that its caller predicts.

    Args:
        params: the request's parameters.
        grammar: the sample's grammar, or None.
        cursor: the place in the predicted output, or None.
        end_ids: the tokens that may end the sample, which `min_tokens` forbids.
        costs: what rows cost in this engine.
    """

    def __init__(
        self,
        params: SamplingParams,
        grammar: GrammarState | None,
        cursor: PredictionCursor | None,
        end_ids: Collection[int],
        costs: RowCosts,
    ) -> None:
        self._params, self._grammar, self._cursor = params, grammar, cursor
        self._end_ids, self._costs = end_ids, costs

    def draft(self, num_output: int, room: int, num_sequences: int) -> list[int]:
        """See `ExpectedTokens.draft`."""
        most = max(0, min(room, self._params.cap_speculation(MOST_DRAFTED)))
        if not most:
            return []
        self.name = "forced"
        forced = self._only_id(num_output, most)
        if not forced and self._grammar is not None:
            forced = self._grammar.forced(most, self._costs.least_chance(num_sequences))
        if forced or self._cursor is None:
            return forced
        self.name = "prediction"
        return self._cursor.draft(most)

    def advance(self, output: Sequence[int], num_new: int) -> None:
        """See `ExpectedTokens.advance`."""
        if self._cursor is not None:
            self._cursor.advance(output, num_new)

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """See `ExpectedTokens.observe`."""
        self.num_drafts += 1
        self.num_accepted += num_accepted
        if self._cursor is not None and self.name == "prediction":
            self._cursor.observe(num_drafted, num_accepted)
            self.num_accepted_predicted += num_accepted
            self.num_rejected_predicted += num_drafted - num_accepted

    def observe_step(self, num_sequences: int, num_nodes: int, seconds: float) -> None:
        """See `ExpectedTokens.observe_step`."""
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
