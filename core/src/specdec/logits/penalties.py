"""Repetition, presence and frequency penalties."""

from __future__ import annotations

import torch

from specdec.interfaces.sent import sent
from specdec.logits.rows import RowBlock
from specdec.sampling_params import SamplingParams


class PenaltyRule:
    """Lowers the logits of tokens that occurred in prompt or output (repetition) or in the output (presence, frequency).

    Drafted tokens before a row count as output. Formulas: CTRL (arXiv 1909.05858) for repetition, OpenAI's for the
    others. Memory for the counts is allocated in the first step, not while the request waits.

    Args:
        params: the request's sampling parameters.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._counts: torch.Tensor | None = None
        self._is_in_prompt: torch.Tensor | None = None
        self._num_counted = 0

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the penalised rows `[num_rows, V]`."""
        committed, is_in_prompt = self._count_committed(block, logits)
        counts = committed.expand_as(logits).clone()
        places = [(row, token_id) for row, path in enumerate(block.paths()) for token_id in path]
        if places:
            index = sent(torch.tensor(places), logits.device).unbind(-1)
            counts.index_put_(index, counts.new_ones(len(places)), accumulate=True)
        is_in_output = counts > 0
        if self._repetition != 1.0:
            lowered = torch.where(logits > 0, logits / self._repetition, logits * self._repetition)
            logits = torch.where(is_in_output | is_in_prompt, lowered, logits)
        return logits - self._frequency * counts - self._presence * is_in_output.to(counts)

    def _count_committed(self, block: RowBlock, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Count the tokens committed since the last step.

        Returns:
            `[V]` float32 number of occurrences of each id in the output, and `[V]` whether the id is in the prompt.
        """
        device, size = logits.device, logits.shape[-1]
        if self._counts is None or self._is_in_prompt is None:
            self._counts = torch.zeros(size, dtype=torch.float32, device=device)
            self._is_in_prompt = torch.zeros(size, dtype=torch.bool, device=device)
            prompt = torch.from_numpy(block.token_ids[: block.num_prompt_tokens].astype("int64"))
            self._is_in_prompt[sent(prompt, device)] = True
            self._num_counted = block.num_prompt_tokens
        if self._num_counted < len(block.token_ids):
            new = sent(torch.from_numpy(block.token_ids[self._num_counted :].astype("int64")), device)
            self._counts.index_add_(0, new, self._counts.new_ones(len(new)))
            self._num_counted = len(block.token_ids)
        return self._counts, self._is_in_prompt
