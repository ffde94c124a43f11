"""`strict` in vLLM's V2 model runner: the text of a seed is the one without drafts."""

from __future__ import annotations

from typing import Any

import torch


class StrictVerify:
    """Takes the place of `RejectionSampler._verify`: draws every row as vLLM does without drafts.

    vLLM's noise depends on a request's seed and the position alone. A drafted token is accepted if it is the one that was
    drawn there, so nothing of a draft enters the text. The host does not wait for the device.

    Args:
        sampler: vLLM's sampler.
        width: most drafted tokens of a request.
    """

    def __init__(self, sampler: Any, width: int) -> None:
        self._sampler = sampler
        self._width = width

    def __call__(
        self,
        logits: torch.Tensor,
        draft_logits: torch.Tensor | None,
        draft_sampled: torch.Tensor,
        pos: torch.Tensor,
        cu_num_logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        idx_mapping_np: Any,
        expanded_idx_mapping: torch.Tensor,
        expanded_local_pos: torch.Tensor,
        seq_lens_upper_bound_np: Any,
        verify_draft_sampled: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return processed logits `[R, V]`, emitted tokens `[B, width + 1]` and how many there are `[B]`.

        Args:
            logits: `[R, V]` of the last token and the drafted ones of each request, one request after another.
            draft_logits: not used.
            draft_sampled: `[R]` the tokens of these rows.
            pos: `[R]` their positions.
            cu_num_logits: `[B + 1]` first row of each request.
            idx_mapping: `[B]` each request's line in vLLM's state.
            idx_mapping_np: the same on the host.
            expanded_idx_mapping: `[R]` each row's.
            expanded_local_pos: `[R]` number of each row within its request.
            seq_lens_upper_bound_np: `[B]` as vLLM's sampler takes them.
            verify_draft_sampled: `[R]` as `draft_sampled`, with -1 for what a grammar excludes.
        """
        drawn, processed = self._sampler.sample(
            logits,
            expanded_idx_mapping,
            idx_mapping,
            idx_mapping_np,
            pos,
            draft_sampled,
            expanded_local_pos,
            seq_lens_upper_bound_np,
            return_logprobs=True,
        )
        return processed, *accepted(drawn, verify_draft_sampled, cu_num_logits, self._width)


def accepted(
    drawn: torch.Tensor, drafted: torch.Tensor, starts: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the drawn tokens of each request up to the first that was not drafted.

    Args:
        drawn: `[R]` the token that was drawn after each row.
        drafted: `[R]` the token of each row; of a request's first row the last committed one.
        starts: `[B + 1]` first row of each request.
        width: most drafted tokens of a request.

    Returns:
        `[B, width + 1]` int64 tokens, with anything behind the emitted ones, and `[B]` int32 how many these are.
    """
    columns = torch.arange(width + 1, device=drawn.device)
    rows = starts[:-1, None] + columns
    last = drawn.shape[0] - 1
    sampled = drawn[rows.clamp(max=last)].to(torch.int64)
    is_drafted = columns < (starts[1:] - starts[:-1] - 1)[:, None]
    is_equal = sampled == drafted[(rows + 1).clamp(max=last)]
    return sampled, 1 + (is_drafted & is_equal).to(torch.int32).cumprod(1).sum(1, dtype=torch.int32)
