"""Chains drafted in one compiled call, put into sketches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec.drafting.sketch import Sketch
from specdec.drafting.vocabulary import DraftVocabulary
from specdec.interfaces import ProposeBatch
from specdec.runner import ChainRules, Chains, ChainWork
from specdec.sampling_params import SamplingParams

ChainCall = Callable[[ChainWork], Chains]
"""Drafts what is asked, from what it holds already."""
Places = tuple[Sequence[int], Sequence[int]]
"""Of each sketch the cache slot of position 0, and the rows in the cache."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a call has left behind."""

    fed: list[list[int]]
    """For each sketch the tokens that have been run: all but the last that was chosen or that it may have."""
    chains: Chains


class ChainLoop:
    """Decides whether the compiled loop of a runner chooses what a batch wants, and uses it.

    Args:
        method: `greedy`, `coupled` or `probabilistic`.
        vocabulary: which ids may be drafted.
        num_logits: logits of the draft.
        threshold: a draft ends after the first token whose probability is below; 0 for never.
    """

    def __init__(self, method: str, vocabulary: DraftVocabulary, num_logits: int, threshold: float) -> None:
        self._method = method
        ids = vocabulary.chain_ids(num_logits)
        self._is_possible = ids is not None
        num_ids, target_ids = (0, None) if ids is None else ids
        self.rules = ChainRules(num_ids, target_ids, is_drawn=method == "probabilistic", threshold=threshold)

    def can_draft(self, batch: ProposeBatch, drafting: Sequence[Sketch], max_rows: int) -> bool:
        """Return whether these rows can be drafted together in the loop: no grammar, and no cuts where tokens are drawn."""
        if not self._is_possible or batch.allowed_after is not None or not 0 < len(drafting) <= max_rows:
            return False
        if self._method == "greedy":
            return True
        return not any(_has_cuts(batch.sampling_params[sketch.row]) for sketch in drafting)

    def draft(
        self,
        batch: ProposeBatch,
        drafting: Sequence[Sketch],
        call: ChainCall,
        places: Places,
        eos_token_ids: tuple[int, ...],
    ) -> Drafted:
        """Fill the sketches; rows that may have fewer tokens than others end earlier."""
        rows = [sketch.row for sketch in drafting]
        depths = [min(sketch.max_depth, sketch.max_nodes) for sketch in drafting]
        params = [batch.sampling_params[row] for row in rows]
        is_greedy = self._method == "greedy"
        temperatures = [0.0 if is_greedy else p.temperature for p in params]
        keys = batch.draws.coupled_keys(rows)
        chains = call(ChainWork(*places, max(depths), temperatures, keys, self.rules))
        tokens = chains.token_ids.tolist()
        chances = chains.chances.tolist()
        for index, (sketch, depth) in enumerate(zip(drafting, depths, strict=True)):
            ends = () if params[index].ignore_eos else eos_token_ids
            length = min(depth, len(tokens[index]))
            length = next((i + 1 for i in range(length) if tokens[index][i] in ends), length)
            if self.rules.wants_chances:
                unsure = (i + 1 for i in range(length) if chances[index][i] < self.rules.threshold)
                length = next(unsure, length)
                sketch.confidence = chances[index][:length]
            sketch.token_ids = tokens[index][:length]
            sketch.parents = list(range(-1, length - 1))
            if self.rules.is_drawn and not params[index].is_greedy:
                sketch.laws = {i: chains.laws[index, i] for i in range(length)}
        fed = [row[: min(depth, len(row)) - 1] for row, depth in zip(tokens, depths, strict=True)]
        return Drafted(fed, chains)


def _has_cuts(params: SamplingParams) -> bool:
    """Return whether a request's distribution is cut, which only `cut_logits` does."""
    return not params.is_greedy and (params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0)
