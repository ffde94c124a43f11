"""Strict verification in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.gumbel_sample.reference import gumbel_sample_reference
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.process_logits.reference import kept
from specdec_kernels.triton.results import PADDING_ID
from specdec_kernels.triton.strict_verify.request_cuts import RequestCuts


def strict_verify_reference(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    parents: torch.Tensor | None,
    cuts: RequestCuts | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the tensors of a `PathVerdict`; see `strict_verify`."""
    size, width = draft_token_ids.shape
    batch, places = torch.arange(size, device=logits.device), torch.arange(width + 1, device=logits.device)
    if parents is None:
        parents = (places[:width] - 1).expand(size, width)
    # The caller's padding is ignored, and what does not precede its child is moved there.
    parents = torch.where(places[1:] <= num_nodes[:, None], parents, -1).long()
    parents = torch.minimum(parents, places[:width] - 1).clamp(min=-1)
    depths = torch.zeros((size, width + 1), dtype=torch.int64, device=logits.device)
    for node in range(width):
        depths[:, node + 1] = depths[batch, parents[:, node] + 1] + 1
    rows = torch.where(places <= num_nodes[:, None], row_starts[:, None] + places, 0)
    drawn = _draw(logits, rows, temperatures, keys, depths, cuts)
    is_invalid = ~(logits.amax(1) > -torch.inf)[rows]

    stands = torch.zeros_like(depths, dtype=torch.bool)
    stands[:, 0] = True
    for node in range(width):
        is_drawn = draft_token_ids[:, node] == drawn[batch, parents[:, node] + 1]
        stands[:, node + 1] = stands[batch, parents[:, node] + 1] & is_drawn & (node < num_nodes)
    reached = torch.where(stands, depths, -1)
    num_accepted = reached.amax(1)
    last = torch.where(reached == num_accepted[:, None], places, width + 1).amin(1)  # the first of equals

    tokens = torch.full((size, width + 1), PADDING_ID, dtype=torch.int64, device=logits.device)
    tokens[batch, num_accepted] = drawn[batch, last]
    nodes = torch.full_like(tokens, PADDING_ID)
    first_invalid = torch.where(is_invalid[batch, last], num_accepted, -1)
    for _ in range(width):
        above = (last - 1).clamp(min=0)
        place = torch.where(last > 0, depths[batch, last] - 1, width)
        is_on_path = places[:width] == place[:, None]
        nodes[:, :width] = torch.where(is_on_path, above[:, None], nodes[:, :width])
        on_path = draft_token_ids[batch, above].long()
        tokens[:, :width] = torch.where(is_on_path, on_path[:, None], tokens[:, :width])
        last = torch.where(last > 0, parents[batch, above] + 1, 0)
        first_invalid = torch.where(is_invalid[batch, last], depths[batch, last], first_invalid)
    return num_accepted, tokens, nodes[:, :width], first_invalid


def _draw(
    logits: torch.Tensor,
    rows: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    depths: torch.Tensor,
    cuts: RequestCuts | None,
) -> torch.Tensor:
    """Return the token `[B, N + 1]` drawn from each of `rows [B, N + 1]`: of the last committed token and of every node."""
    size, count = depths.shape
    by_place = NoiseKeys(
        keys.seeds.repeat_interleave(count),
        (keys.positions[:, None] + depths).flatten(),
        keys.samples.repeat_interleave(count),
    )
    by_row, heats = logits[rows.flatten()], temperatures.repeat_interleave(count)
    if cuts is not None:
        is_kept = kept(by_row, *(each.repeat_interleave(count) for each in cuts)) | (heats == 0)[:, None]
        by_row = by_row.masked_fill(~is_kept, -torch.inf)
    drawn = gumbel_sample_reference(by_row, heats, by_place, None)
    return drawn.reshape(size, count)
