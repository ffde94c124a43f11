"""Presents the tokens of a batch column by column, as `generate` does, although rows advance at different speeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from transformers import StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.streamers import BaseStreamer

from specdec import FinishReason
from specdec.engine import Sequence as Row
from specdec_transformers.raw_logits import RawLogits


class Columns:
    """Passes each column to criteria, scores and a streamer once every row has it, as transformers' own loop does.

    A finished row is padded; tokens that the engine committed after the column where it ended are dropped.

    Args:
        input_ids: `[B, L]` the padded prompts.
        rows: `[B]` the sequences that the engine appends to.
        pad_token_id: padding after the end of a row; None if no text can end, so rows continue until all criteria are
            met, as in transformers.
        streamer: receives each column `[B]`; None for none.
        criteria: all stopping criteria of the call, if there are others than end of text and length; else None.
        processors: logits processors, if scores are wanted; else None.
        wants_logits: whether to keep logits, as output or for scores; the rows then record them.
    """

    def __init__(
        self,
        input_ids: torch.Tensor,
        rows: Sequence[Row],
        pad_token_id: int | None,
        *,
        streamer: BaseStreamer | None = None,
        criteria: StoppingCriteriaList | None = None,
        processors: LogitsProcessorList | None = None,
        wants_logits: bool = False,
    ) -> None:
        self._rows = rows
        self._pad = pad_token_id
        self._streamer = streamer
        self._criteria = criteria
        self._processors = processors
        self.wants_logits = wants_logits
        self._is_unfinished = [True] * len(rows)
        self._num_columns = 0
        self.input_ids = input_ids
        """`[B, L + columns]`: prompts and generated tokens."""
        self.logits: tuple[torch.Tensor, ...] = ()
        """`[B, V]` for each column, if logits or scores are wanted; 0 after the end of a row."""
        self.scores: tuple[torch.Tensor, ...] = ()
        """The same after all logits processors."""

    @property
    def is_complete(self) -> bool:
        """Whether every row has ended."""
        return not any(self._is_unfinished)

    def needs(self, index: int) -> bool:
        """Return whether a row has not ended and all its committed tokens have been consumed."""
        return self._is_unfinished[index] and not self._has_next(index)

    def advance(self) -> list[int]:
        """Advance to the last column that every row has; return the rows that still run but need not continue."""
        while not self.is_complete and all(map(self._has_next, range(len(self._rows)))):
            self._next()
        is_over = [self.is_complete or self._is_padded(index) for index in range(len(self._rows))]
        return [index for index, row in enumerate(self._rows) if is_over[index] and not row.is_finished]

    def _is_padded(self, index: int) -> bool:
        return self._pad is not None and not self._is_unfinished[index]

    def _has_next(self, index: int) -> bool:
        return self._is_padded(index) or self._rows[index].num_output_tokens > self._num_columns

    def _next(self) -> None:
        if self.wants_logits:
            self._keep_logits()
        column = [
            self._pad
            if self._is_padded(index)
            else int(row.token_ids[row.num_prompt_tokens + self._num_columns])
            for index, row in enumerate(self._rows)
        ]
        tokens = self.input_ids.new_tensor(column)
        self.input_ids = torch.cat([self.input_ids, tokens[:, None]], -1)
        self._num_columns += 1
        is_done = [self._is_out(row) for row in self._rows]
        if self._criteria is not None:
            found = self._criteria(self.input_ids, self.scores if self._processors is not None else None)
            is_done = [over or met for over, met in zip(is_done, found.tolist(), strict=True)]
        self._is_unfinished = [on and not over for on, over in zip(self._is_unfinished, is_done, strict=True)]
        if self._streamer is not None:
            self._streamer.put(tokens.cpu())

    def _is_out(self, row: Row) -> bool:
        """Return whether a row has ended, other than by an error, and all its tokens have been consumed."""
        is_ended = row.is_finished and row.finish_reason is not FinishReason.ERROR
        return is_ended and row.num_output_tokens <= self._num_columns

    def _keep_logits(self) -> None:
        found: list[torch.Tensor | None] = []
        for index, row in enumerate(self._rows):
            record = row.logprobs
            assert isinstance(record, RawLogits)
            found.append(None if self._is_padded(index) else record.rows[self._num_columns])
        nothing = next(torch.zeros_like(logits) for logits in found if logits is not None)
        self.logits += (torch.stack([nothing if logits is None else logits for logits in found]),)
        if self._processors is not None:
            self.scores += (
                self._processors(cast(torch.LongTensor, self.input_ids), self.logits[-1].clone()),
            )


def joined(input_ids: torch.Tensor, rows: Sequence[Row], pad_token_id: int | None) -> torch.Tensor:
    """Return `[B, L + the most new tokens]`: the final `Columns.input_ids` if nothing is needed between columns."""
    width = max(row.num_output_tokens for row in rows)
    new = input_ids.new_full((len(rows), width), 0 if pad_token_id is None else pad_token_id)
    for index, row in enumerate(rows):
        ids = torch.from_numpy(row.token_ids[row.num_prompt_tokens :].astype("int64"))
        new[index, : len(ids)] = ids
    return torch.cat([input_ids, new], -1)
