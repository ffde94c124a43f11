"""The distributions that drafts were drawn from, as vLLM's V2 rejection sampler takes them."""

from __future__ import annotations

import torch

from specdec.interfaces import CheckedDraft


class DraftLogits:
    """`draft_logits` of a speculator: before temperature, on vLLM's lines.

    Args:
        num_lines: most requests.
        width: most drafted tokens of a request.
        vocab_size: number of the target's ids.
        device: of the target.
    """

    def __init__(self, num_lines: int, width: int, vocab_size: int, device: torch.device) -> None:
        shape = num_lines, width, vocab_size
        self.tensor = torch.full(shape, -torch.inf, dtype=torch.float32, device=device)
        """`[num_lines, width, vocab_size]` float32."""

    def write(
        self,
        nodes: torch.Tensor,
        lines: torch.Tensor,
        temperature: torch.Tensor,
        draft: CheckedDraft,
        rows: list[int],
    ) -> None:
        """Write q of a batch's drafts; a token that was not drawn is a point mass.

        Args:
            nodes: `[B, width]` drafted tokens, with anything behind a draft.
            lines: `[B]` each request's.
            temperature: `[num_lines]` vLLM's.
            draft: of some of these requests.
            rows: which rows of the batch these are.
        """
        masses = torch.full((*nodes.shape, self.tensor.shape[2]), -torch.inf, device=nodes.device)
        masses.scatter_(2, nodes[:, :, None], 0.0)
        if draft.drawn is not None and rows:
            drawn = draft.drawn
            width = min(drawn.token_ids.shape[1], nodes.shape[1])
            places = torch.tensor(rows, device=nodes.device)
            # A drawn id outside the vocabulary was replaced: nothing from there on has a q.
            is_drawn = (drawn.token_ids[:, :width] == nodes[places, :width]).to(torch.int32).cumprod(1).bool()
            if drawn.has_probs is not None:
                is_drawn &= drawn.has_probs.to(nodes.device)[:, None]
            q = _of_target(drawn.node_probs[:, :width], drawn.vocab_map, self.tensor.shape[2])
            logits = q.log() * temperature[lines[places]][:, None, None]  # vLLM divides by it again
            masses[places, :width] = torch.where(is_drawn[:, :, None], logits, masses[places, :width])
        self.tensor[lines] = masses


def _of_target(probs: torch.Tensor, vocab_map: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """Return distributions over the target's ids; those of a draft's ids outside the vocabulary were not drawn from."""
    whole = probs.new_zeros(*probs.shape[:-1], vocab_size, dtype=torch.float32)
    if vocab_map is None:
        num_ids = min(probs.shape[-1], vocab_size)
        whole[..., :num_ids] = probs[..., :num_ids]
        return whole
    return whole.index_copy_(-1, vocab_map, probs.to(torch.float32))
