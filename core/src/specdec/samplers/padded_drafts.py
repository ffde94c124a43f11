"""The drafts of a batch and the target's probabilities: the input of a verification scheme."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from specdec.interfaces.draft import PADDING_ID, DraftSampling
from specdec.interfaces.sampler import VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.draft_probs import DraftProbs, DraftVocabulary
from specdec.samplers.links import NO_NODE, Links
from specdec.samplers.paths import raise_not_numbers
from specdec.samplers.target_distribution import target_probs


@dataclass(frozen=True)
class PaddedDrafts:
    """One draft per request, padded to N nodes, and p and q at every node. Tensors are on one device."""

    probs: torch.Tensor
    """`[R, V]`: p of every logits row, in the precision the scheme is computed in. A greedy row is one-hot at
    its argmax."""
    token_ids: torch.Tensor
    """`[B, N]` int64: drafted ids; those outside the vocabulary are never accepted. Padding may be anything."""
    rows: torch.Tensor
    """`[B, N + 1]` int64: row of `probs` after the last committed token, then after each node; see `node_rows`."""
    num_nodes: torch.Tensor
    """`[B]` int64: nodes of each draft."""
    links: Links | None
    """Parents of the nodes; None for chains, in which every node is its predecessor's child."""
    draft_probs: DraftProbs | None
    """q, or None where no row carries any."""

    @property
    def size(self) -> int:
        """B."""
        return len(self.num_nodes)

    @property
    def width(self) -> int:
        """N."""
        return self.token_ids.shape[1]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.probs.shape[1]

    @cached_property
    def batch_index(self) -> torch.Tensor:
        """`[B]`: 0, 1, ..."""
        return torch.arange(self.size, device=self.probs.device)

    @cached_property
    def is_node(self) -> torch.Tensor:
        """`[B, N]`: True for nodes, False for padding."""
        return self.places[:-1] < self.num_nodes[:, None]

    @cached_property
    def places(self) -> torch.Tensor:
        """`[N + 1]`: 0, 1, ..."""
        return torch.arange(self.width + 1, device=self.probs.device)

    @cached_property
    def columns(self) -> torch.Tensor:
        """`[B, N]`: drafted ids; V for ids outside the vocabulary and for padding."""
        size = self.vocab_size
        columns = self.token_ids.clamp(-1, size) % (size + 1)  # -1 becomes V too
        return torch.where(self.is_node, columns, size)

    @cached_property
    def parents(self) -> torch.Tensor:
        """`[B, N]`: -1 is the last committed token, `NO_NODE` marks padding."""
        if self.links is not None:
            return self.links.parents
        return (self.places[:-1] - 1).expand(self.size, -1).masked_fill(~self.is_node, NO_NODE)

    @cached_property
    def parent_places(self) -> torch.Tensor:
        """`[B, N]`: column of `rows`, and row of q, that belongs to each node's parent; any for padding."""
        if self.links is None:
            return self.places[:-1].expand(self.size, -1)
        return (self.links.parents + 1).clamp_min(0)

    @property
    def parent_rows(self) -> torch.Tensor:
        """`[B, N]`: row of `probs` that belongs to each node's parent; any for padding."""
        return self.rows[:, :-1] if self.links is None else self.rows.gather(1, self.parent_places)

    def target_of_nodes(self) -> torch.Tensor:
        """Return `[B, N]`: p of each drafted id after its parent; 0 outside the vocabulary and for padding."""
        found = self.probs[self.parent_rows, self.columns.clamp_max(self.vocab_size - 1)]
        return found.masked_fill(self.columns == self.vocab_size, 0.0)

    def target_after(self, stop: torch.Tensor) -> torch.Tensor:
        """Return `[B, V]`: p after node `stop[i]`; -1 is the last committed token."""
        return self.probs.index_select(0, self.rows[:, 0] + (stop + 1))


def node_rows(starts: torch.Tensor, num_nodes: torch.Tensor, width: int) -> torch.Tensor:
    """Return the rows `[B, width + 1]` of requests that begin at `starts [B]`; padding repeats the last."""
    steps = torch.arange(width + 1, device=starts.device)
    return starts[:, None] + torch.minimum(steps, num_nodes[:, None])


def pad_drafts(scores: Scores, batch: VerifyBatch, *, uses_q: bool = True) -> PaddedDrafts:
    """Make the trial of a batch of drafts.

    Args:
        scores: p-logits, of any floating type.
        batch: the drafts, and facts about their requests.
        uses_q: False ignores q: every node is a point mass at the id it was scored with.

    Raises:
        FloatingPointError: if the target's logits are not numbers (on the CPU).
    """
    device, width = scores.logits.device, max(batch.num_nodes)
    greedy = [index for index, params in enumerate(batch.sampling_params) if params.is_greedy]
    starts, num_nodes = torch.tensor([batch.row_starts, batch.num_nodes], device=device)
    rows = node_rows(starts, num_nodes, width)
    is_greedy = torch.ones(len(greedy), dtype=torch.bool, device=device) if greedy else None
    probs = target_probs(scores.logits, rows[greedy] if greedy else rows, is_greedy)
    if device.type == "cpu" and not np.isfinite(probs.numpy()[:, 0]).all():  # a device would be waited for
        raise_not_numbers()
    draft_probs = _draft_probs(batch, probs) if width and uses_q else None
    return PaddedDrafts(
        probs=probs,
        token_ids=_token_ids(batch, width, device, draft_probs),
        rows=rows,
        num_nodes=num_nodes,
        links=Links.of(batch.parents, width, device) if batch.parents is not None and width else None,
        draft_probs=draft_probs,
    )


def _token_ids(
    batch: VerifyBatch, width: int, device: torch.device, draft_probs: DraftProbs | None
) -> torch.Tensor:
    """Return the ids `[B, width]`: as drawn in rows whose q is used, as scored in all others."""
    drawn = None if draft_probs is None or batch.drawn is None else batch.drawn.token_ids[:, :width]
    is_drawn = None if draft_probs is None else draft_probs.is_drawn
    if drawn is not None and is_drawn is None:
        return drawn.to(device)
    ids = np.full((len(batch.nodes), width), PADDING_ID, np.int64)
    for index, row in enumerate(batch.nodes):
        ids[index, : len(row)] = row
    scored = torch.from_numpy(ids).to(device)
    if drawn is None or is_drawn is None:
        return scored
    return torch.where(is_drawn[:, None], drawn.to(device), scored)


def _draft_probs(batch: VerifyBatch, probs: torch.Tensor) -> DraftProbs | None:
    """Return q of the rows that are sampled; for greedy rows it makes no difference to the output."""
    drawn = batch.drawn
    if drawn is None:
        return None
    is_sampled = [not params.is_greedy for params in batch.sampling_params]
    is_drawn = drawn.has_probs
    if not all(is_sampled):
        sampled = torch.tensor(is_sampled, device=drawn.node_probs.device)
        is_drawn = sampled if is_drawn is None else is_drawn.to(sampled) & sampled
    vocabulary = None
    if drawn.vocab_map is not None:
        vocabulary = DraftVocabulary(drawn.vocab_map.to(probs.device), probs.shape[1])
    return DraftProbs(
        drawn.node_probs,
        vocab_size=probs.shape[1],
        vocabulary=vocabulary,
        is_drawn=is_drawn,
        is_taken_out=drawn.sampling is DraftSampling.WITHOUT_REPLACEMENT,
        like=probs,
    )
