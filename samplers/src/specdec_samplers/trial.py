"""The drafts of a batch and the target's probabilities: the input of a verification scheme."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PADDING_ID, DraftSampling, Scores, VerifyBatch
from specdec_samplers.draft_probs import DraftProbs
from specdec_samplers.links import NO_NODE, Links
from specdec_samplers.target_probs import target_probs

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trial:
    """One draft per request, padded to N nodes, and p and q at every node. Tensors are on one device, arrays on the CPU."""

    probs: torch.Tensor
    """`[R, V]`: p of every logits row, in the precision the scheme is computed in. A greedy row is one-hot at
    its argmax."""
    token_ids: torch.Tensor
    """`[B, N]` int64: drafted ids; those outside the vocabulary are never accepted. Padding may be anything."""
    starts: Int64s
    """`[B]`: row of `probs` after the last committed token; the rows after the nodes follow it."""
    counts: Int64s
    """`[B]`: nodes of each draft."""
    parents: Int64s
    """`[B, N]`: -1 is the last committed token, `NO_NODE` marks padding."""
    is_chain: bool
    """Whether every node is its predecessor's child."""
    draft_probs: DraftProbs | None
    """q, or None where no row carries any."""

    @property
    def size(self) -> int:
        """B."""
        return len(self.starts)

    @property
    def width(self) -> int:
        """N."""
        return self.token_ids.shape[1]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.probs.shape[1]

    @cached_property
    def rows(self) -> torch.Tensor:
        """`[B, N + 1]`: row of `probs` after the last committed token, then after each node; padding repeats the last."""
        steps = np.minimum(np.arange(self.width + 1), self.counts[:, None])
        return self._tensor(self.starts[:, None] + steps)

    @cached_property
    def num_nodes(self) -> torch.Tensor:
        """`[B]`: nodes of each draft."""
        return self._tensor(self.counts)

    @cached_property
    def links(self) -> Links | None:
        """Parents of the nodes; None for chains."""
        return None if self.is_chain else Links.of(self.parents, self.counts, self.probs.device)

    @cached_property
    def batch_index(self) -> torch.Tensor:
        """`[B]`: 0, 1, ..."""
        return torch.arange(self.size, device=self.probs.device)

    @cached_property
    def is_node(self) -> torch.Tensor:
        """`[B, N]`: True for nodes, False for padding."""
        return self._tensor(np.arange(self.width) < self.counts[:, None])

    @cached_property
    def columns(self) -> torch.Tensor:
        """`[B, N]`: drafted ids; V for ids outside the vocabulary and for padding."""
        is_inside = self.is_node & (self.token_ids >= 0) & (self.token_ids < self.vocab_size)
        return self.token_ids.masked_fill(~is_inside, self.vocab_size)

    @cached_property
    def parent_places(self) -> torch.Tensor:
        """`[B, N]`: column of `rows`, and row of q, that belongs to each node's parent; 0 for padding."""
        return self._tensor(np.maximum(self.parents + 1, 0))

    def target_of_nodes(self) -> torch.Tensor:
        """Return `[B, N]`: p of each drafted id after its parent; 0 outside the vocabulary and for padding."""
        rows = self.rows.gather(1, self.parent_places)
        found = self.probs[rows, self.columns.clamp_max(self.vocab_size - 1)]
        return found.masked_fill(self.columns == self.vocab_size, 0.0)

    def target_after(self, stop: torch.Tensor) -> torch.Tensor:
        """Return `[B, V]`: p after node `stop[i]`; -1 is the last committed token."""
        return self.probs.index_select(0, stop + self._tensor(self.starts + 1))

    def _tensor(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.probs.device)


def make_trial(scores: Scores, batch: VerifyBatch, *, uses_q: bool = True) -> Trial:
    """Make the trial of a batch of drafts.

    Args:
        scores: p-logits, of any floating type.
        batch: the drafts, and facts about their requests.
        uses_q: False ignores q: every node is a point mass at the id it was scored with.

    Raises:
        FloatingPointError: if the target's logits are not numbers (on the CPU).
    """
    probs = target_probs(scores, batch)
    counts = np.array(batch.num_nodes, np.int64)
    width = int(counts.max())
    draft_probs = _draft_probs(batch, probs) if width and uses_q else None
    return Trial(
        probs=probs,
        token_ids=_token_ids(batch, width, probs.device, draft_probs),
        starts=np.array(batch.row_starts, np.int64),
        counts=counts,
        parents=_parents(batch, counts, width),
        is_chain=batch.parents is None or width == 0,
        draft_probs=draft_probs,
    )


def _parents(batch: VerifyBatch, counts: Int64s, width: int) -> Int64s:
    """Return the parents `[B, width]`; entries after a row's nodes are ignored."""
    places = np.arange(width)
    is_node = places < counts[:, None]
    if batch.parents is None:
        return np.where(is_node, places - 1, NO_NODE)
    table = np.full(is_node.shape, NO_NODE, np.int64)
    for index, row in enumerate(batch.parents):
        table[index, : counts[index]] = row
    return table


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
    return DraftProbs(
        drawn.node_probs,
        vocab_size=probs.shape[1],
        vocab_map=drawn.vocab_map,
        is_drawn=is_drawn,
        is_taken_out=drawn.sampling is DraftSampling.WITHOUT_REPLACEMENT,
        like=probs,
    )
