"""The logits rows of one request, and the tokens that each row continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.interfaces.batch import TokenIds
from specdec.interfaces.score_batch import LogitsRules
from specdec.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive logits rows of one request: the last committed token's row, then those of its drafted nodes."""

    params: SamplingParams
    nodes: Sequence[int] = ()
    """Drafted token ids."""
    parents: Sequence[int] | None = None
    """Parent of each node, -1 for the last committed token; None for a chain."""
    rules: LogitsRules | None = None
    """Rules that change the logits beyond temperature and truncation; None for most requests."""
    committed: TokenIds | None = None
    """Committed tokens, prompt included; needed with `rules`."""
    num_prompt_tokens: int = 0

    @property
    def num_rows(self) -> int:
        """Number of rows of the block."""
        return len(self.nodes) + 1

    @property
    def token_ids(self) -> TokenIds:
        """Committed tokens, prompt included."""
        assert self.committed is not None
        return self.committed

    @property
    def output_token_ids(self) -> TokenIds:
        """Committed tokens after the prompt."""
        return self.token_ids[self.num_prompt_tokens :]

    def paths(self) -> list[tuple[int, ...]]:
        """Return, for each row, the drafted tokens between the last committed token and the token the row predicts."""
        paths: list[tuple[int, ...]] = [()]
        for node, token_id in enumerate(self.nodes):
            parent = node - 1 if self.parents is None else self.parents[node]
            paths.append((*paths[parent + 1], token_id))
        return paths
