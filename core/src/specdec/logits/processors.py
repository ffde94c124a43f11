"""Logits processors: functions of the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import torch

from specdec.logits.rows import RowBlock
from specdec.sampling_params import LogitsProcessor


class ProcessorRule:
    """Calls the caller's functions, one row at a time.

    Args:
        processors: functions of (output ids, logits `[V]`) or of (prompt ids, output ids, logits `[V]`).
    """

    def __init__(self, processors: Sequence[LogitsProcessor]) -> None:
        self._processors = [
            (processor, len(signature(processor).parameters) == 3) for processor in processors
        ]

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the processed rows `[num_rows, V]`.

        Raises:
            ValueError: if a function does not return logits of the shape it was given.
        """
        prompt = block.token_ids[: block.num_prompt_tokens].tolist()
        output = block.output_token_ids.tolist()
        return torch.stack(
            [
                self._process(row, prompt, [*output, *path])
                for row, path in zip(logits, block.paths(), strict=True)
            ]
        )

    def _process(self, row: torch.Tensor, prompt: list[int], output: list[int]) -> torch.Tensor:
        shape = row.shape
        # Every function gets ids and logits of its own: what it writes reaches nobody else.
        row = row.clone()
        for processor, takes_prompt in self._processors:
            given = (list(prompt), list(output), row) if takes_prompt else (list(output), row)
            returned: object = processor(*given)
            if not isinstance(returned, torch.Tensor) or returned.shape != shape:
                got = tuple(returned.shape) if isinstance(returned, torch.Tensor) else type(returned).__name__
                raise ValueError(f"a logits processor returned {got} for logits of shape {tuple(shape)}")
            row = returned
        return row
