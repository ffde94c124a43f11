"""Logits processors: the caller's own functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.errors import is_interrupt
from specdec.interfaces.row_block import RowBlock
from specdec.sampling_params import LogitsProcessor, accepts_prompt_ids


class ProcessorRule:
    """Calls the caller's functions, one row at a time.

    Args:
        processors: functions of (output ids, logits `[V]`) or of (prompt ids, output ids, logits `[V]`).
    """

    def __init__(self, processors: Sequence[LogitsProcessor]) -> None:
        self._processors = [(processor, accepts_prompt_ids(processor)) for processor in processors]

    def apply(self, logits: torch.Tensor, block: RowBlock) -> tuple[torch.Tensor, dict[int, BaseException]]:
        """Return the processed rows `[num_rows, V]` and, by row, the errors raised; a row with an error is unchanged.

        A drafted path may be rejected, so an error there does not affect other rows.
        """
        prompt = block.token_ids[: block.num_prompt_tokens].tolist()
        output = block.output_token_ids.tolist()
        out = logits.clone()
        errors: dict[int, BaseException] = {}
        for row, path in enumerate(block.paths()):
            try:
                out[row] = self._process(logits[row], prompt, [*output, *path]).detach()
            except BaseException as error:  # the caller's code must not affect other requests
                if is_interrupt(error):
                    raise
                errors[row] = error
        return out, errors

    def _process(self, row: torch.Tensor, prompt: list[int], output: list[int]) -> torch.Tensor:
        shape = row.shape
        # Every function gets its own copies of ids and logits, so its writes affect nothing else.
        row = row.clone()
        for processor, is_of_three in self._processors:
            given = (list(prompt), list(output), row) if is_of_three else (list(output), row)
            returned: object = processor(*given)
            if not isinstance(returned, torch.Tensor) or returned.shape != shape:
                got = tuple(returned.shape) if isinstance(returned, torch.Tensor) else type(returned).__name__
                raise ValueError(f"a logits processor returned {got} for logits of shape {tuple(shape)}")
            if returned.is_complex():
                raise ValueError("a logits processor returned complex numbers")
            row = returned
        return row
