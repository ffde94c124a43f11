"""What a row of expected tokens costs."""

from __future__ import annotations

from specdec.adaptive.step_costs import StepCosts

_HIGHEST, _MARGIN = 0.9, 1.25
"""Chances are those of the tokens that were chosen most often, and so overestimated."""


class RowCosts:
    """Measures how much longer steps take with expected tokens, by the number of sequences."""

    def __init__(self) -> None:
        self._costs = StepCosts()

    def observe(self, num_sequences: int, num_nodes: int, seconds: float) -> None:
        """Record a step in which all sequences decode."""
        self._costs.observe_step_without_draft(num_sequences, num_nodes, seconds)

    def least_chance(self, num_sequences: int) -> float:
        """Return how likely a token must be for its row to pay: one more row of every sequence as a share of a step, which
        without drafts brings one token of each. Below 1, so that some are measured."""
        rest = self._costs.rest(num_sequences)
        plain = rest.at(0)
        return min(_HIGHEST, _MARGIN * (rest.at(num_sequences) - plain) / plain) if plain else _HIGHEST
