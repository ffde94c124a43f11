"""Applies transformers' logits processors to the rows of one request, along drafted paths."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    LogitsProcessor,
    MinPLogitsWarper,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from specdec.interfaces import RowBlock
from specdec.logits.rules import ProcessorRule

_BLIND = (
    EpsilonLogitsWarper, EtaLogitsWarper, InfNanRemoveLogitsProcessor, LogitNormalization, MinPLogitsWarper,
    SuppressTokensLogitsProcessor, TemperatureLogitsWarper, TopHLogitsWarper, TopKLogitsWarper, TopPLogitsWarper,
    TypicalLogitsWarper,
)  # fmt: skip
"""Processors that ignore token ids, so they can process all rows at once."""


class RowProcessors(ProcessorRule):
    """Calls logits processors with the same ids as `generate`: the padded prompt and the tokens after it.

    Args:
        processors: the processors in order, made for one row by `for_row`.
        prompt: `[L]` the row of `input_ids`, including padding.
        room: the most tokens after the prompt, including drafted ones.
    """

    def __init__(self, processors: Sequence[LogitsProcessor], prompt: torch.Tensor, room: int) -> None:
        super().__init__(())
        self._row_processors = tuple(processors)
        self._num_prompt = len(prompt)
        self._num_ids = len(prompt)
        self._ids = torch.empty(len(prompt) + room, dtype=torch.long, device=prompt.device)
        self._ids[: len(prompt)] = prompt

    def apply(self, logits: torch.Tensor, block: RowBlock) -> tuple[torch.Tensor, dict[int, BaseException]]:
        """Return the processed rows `[num_rows, V]`, and the exceptions by row; rows with an exception are left unchanged."""
        new = block.output_token_ids[self._num_ids - self._num_prompt :]
        if len(new):
            self._ids[self._num_ids : self._num_ids + len(new)] = torch.from_numpy(new.astype("int64"))
            self._num_ids += len(new)
        rows = [self._ids_of(path) for path in block.paths()]
        errors: dict[int, BaseException] = {}
        out = logits
        for processor in self._row_processors:
            if type(processor) in _BLIND:
                out = processor(rows[0], out)
            else:
                out = torch.cat(
                    [self._call(processor, ids, out[row], row, errors) for row, ids in enumerate(rows)]
                )
        return out, errors

    def _ids_of(self, path: tuple[int, ...]) -> torch.Tensor:
        """Return `[1, N]` the ids before a row, as a new tensor because a processor may keep it."""
        path_ids = torch.tensor(path, dtype=torch.long, device=self._ids.device)
        return torch.cat([self._ids[: self._num_ids], path_ids])[None]

    def _call(
        self,
        processor: LogitsProcessor,
        ids: torch.Tensor,
        logits: torch.Tensor,
        row: int,
        errors: dict[int, BaseException],
    ) -> torch.Tensor:
        if row not in errors:
            try:
                out: torch.Tensor = processor(ids, logits[None].clone())
                return out
            except (
                Exception
            ) as error:  # the path may never be taken: the error matters only if a token is chosen from it
                errors[row] = error
        return logits[None]


def for_row(processor: LogitsProcessor, row: int, num_rows: int) -> LogitsProcessor:
    """Return a processor for one row of a batch; processors with per-row state are copied with that row's state.

    Args:
        processor: processor of the whole batch.
        row: index of the row.
        num_rows: number of rows of the batch, where every prompt is repeated for each of its samples.
    """
    own = copy(processor)
    if isinstance(own, RepetitionPenaltyLogitsProcessor) and isinstance(
        own.prompt_ignore_length, torch.Tensor
    ):
        own.prompt_ignore_length = own.prompt_ignore_length[row : row + 1]
    elif isinstance(own, PrefixConstrainedLogitsProcessor):
        allowed = own._prefix_allowed_tokens_fn
        own._prefix_allowed_tokens_fn = lambda _, ids: allowed(row, ids)
    elif isinstance(own, EncoderRepetitionPenaltyLogitsProcessor):
        index = row * len(own.encoder_input_ids) // num_rows
        vars(own)["encoder_input_ids"] = own.encoder_input_ids[index : index + 1]
    elif isinstance(own, EncoderNoRepeatNGramLogitsProcessor):
        own.generated_ngrams = [own.generated_ngrams[row * own.batch_size // num_rows]]
        own.batch_size = 1
    else:
        return processor
    return own
