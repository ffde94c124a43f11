"""Repetition, presence and frequency penalties."""

from __future__ import annotations

import numpy as np

from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.row_operations import Occurrences
from specdec.logits.rules.edits import Edits, Int64s, Points
from specdec.sampling_params import SamplingParams


class PenaltyRule:
    """Lowers the logits of tokens that occurred in prompt or output (repetition) or in the output (presence, frequency).

    Drafted tokens before a row count as output. Formulas: CTRL (arXiv 1909.05858) for repetition, OpenAI's for the
    others. Each different token is counted once, on the host, which knows the text.

    Args:
        params: the request's sampling parameters.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._places: dict[int, int] = {}
        """Place of each id that occurred in the two arrays."""
        self._ids = np.empty(0, np.int64)
        self._counts = np.empty(0, np.float32)
        """Occurrences of each in the output."""
        self._num_from_prompt = 0
        """The first ones are those of the prompt."""
        self._num_counted = -1

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Add the rule to the penalties of the rows."""
        self._count_committed(block)
        edits.penalties.append((self, block))

    def occurrences(self, block: RowBlock) -> Occurrences:
        """Return what is counted of the rows of a block, whose drafted ids need not be known."""
        amounts = self._repetition, self._presence, self._frequency
        return Occurrences(self._ids, self._counts, amounts, block)

    def points(self, block: RowBlock, rows: Int64s) -> Points:
        """Return what happens in `rows` of a block."""
        num_known, num_rows = len(self._ids), block.num_rows
        drafted = dict.fromkeys(token_id for token_id in block.nodes if token_id not in self._places)
        ids = np.concatenate((self._ids, np.fromiter(drafted, np.int64, len(drafted))))
        indices = self._places | {token_id: num_known + index for index, token_id in enumerate(drafted)}
        counts = np.zeros((num_rows, len(ids)), np.float32)
        counts[:, :num_known] = self._counts
        for row, path in enumerate(block.paths()):
            for token_id in path:
                counts[row, indices[token_id]] += 1
        is_in_output = counts > 0
        occurred = is_in_output | (np.arange(len(ids)) < self._num_from_prompt)
        ratios = np.where(occurred, np.float32(self._repetition), np.float32(1.0))
        amounts = np.stack(
            (ratios, self._frequency * counts, self._presence * is_in_output.astype(np.float32))
        )
        return Points(rows.repeat(len(ids)), np.tile(ids, len(rows)), amounts[:, rows].reshape(3, -1))

    def _count_committed(self, block: RowBlock) -> None:
        """Count the tokens committed since the last step; those of the prompt only where they are penalised."""
        if self._num_counted < 0:
            self._num_counted = block.num_prompt_tokens
            if self._repetition != 1.0:
                self._find(block.token_ids[: self._num_counted].tolist())
            self._num_from_prompt = len(self._ids)
        committed = block.token_ids[self._num_counted :].tolist()
        if committed:
            self._num_counted += len(committed)
            indices = self._find(committed)
            np.add.at(self._counts, indices, 1)

    def _find(self, token_ids: list[int]) -> list[int]:
        """Return the places of ids, which are given to new ones."""
        num_known = len(self._ids)
        found = [self._places.setdefault(token_id, len(self._places)) for token_id in token_ids]
        new = [token_id for token_id in dict.fromkeys(token_ids) if self._places[token_id] >= num_known]
        if new:
            self._ids = np.concatenate((self._ids, new))
            self._counts = np.pad(self._counts, (0, len(new)))
        return found
