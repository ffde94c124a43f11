"""What is expected next in one sample, without a proposer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from specdec.engine.prediction import MOST_DRAFTED, Prediction, PredictionCursor
from specdec.interfaces.grammar import GrammarState

if TYPE_CHECKING:
    from specdec.sampling_params import SamplingParams


class ExpectedTokens:
    """Drafts the tokens that a sample's rules force, or else those that its caller predicts.

    Both are point masses that depend on committed tokens alone, so every sampler verifies them without loss.

    Args:
        params: the request's parameters.
        grammar: the sample's grammar, or None.
        prediction: the predicted output, or None.
        end_ids: the tokens that may end the sample, which `min_tokens` forbids.
    """

    def __init__(
        self,
        params: SamplingParams,
        grammar: GrammarState | None,
        prediction: Prediction | None,
        end_ids: Collection[int],
    ) -> None:
        self._params = params
        self._grammar = grammar
        self._cursor = None if prediction is None else PredictionCursor(prediction)
        self._end_ids = end_ids
        self.name = ""
        """What the last draft is from: `forced` or `prediction`."""
        self.num_drafts = self.num_accepted = 0
        self.num_accepted_predicted = 0
        self.num_rejected_predicted = 0

    def draft(self, num_output: int, room: int, least_chance: float) -> list[int]:
        """Return the tokens expected next, at most `room`.

        Args:
            num_output: number of committed output tokens.
            room: most tokens that fit the sample.
            least_chance: see `RowCosts`.
        """
        most = max(0, min(room, self._params.cap_speculation(MOST_DRAFTED)))
        if not most:
            return []
        self.name = "forced"
        forced = self._only_id(num_output, most)
        if not forced and self._grammar is not None:
            forced = self._grammar.forced(most, least_chance)
        if forced or self._cursor is None:
            return forced
        self.name = "prediction"
        return self._cursor.draft(most)

    def advance(self, output: Sequence[int], num_new: int) -> None:
        """Take in the output, whose last `num_new` tokens are new."""
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

    def _only_id(self, num_output: int, most: int) -> list[int]:
        """Return the one id that `allowed_token_ids` and `min_tokens` leave, as often as they leave it alone."""
        allowed = set(self._params.allowed_token_ids or ())
        if len(allowed) > 1 and num_output < self._params.min_tokens:
            allowed -= set(self._end_ids)
            most = min(most, self._params.min_tokens - num_output)
        return list(allowed) * most if len(allowed) == 1 else []
