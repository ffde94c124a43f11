"""One row of a draft, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specdec.engine import DraftError, check_draft, equal_siblings
from specdec.interfaces import PADDING_ID, Draft, DraftSampling
from specdec_testing.support.verdicts import broken

_ANY = 2**31
"""A cap that is never reached."""


@dataclass(frozen=True)
class Row:
    """The draft of one request without padding. Rows are equal if their tokens and parents are equal."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """For a chain: each node's predecessor."""
    is_tree: bool = field(compare=False)
    """Whether the draft has `parents`."""
    sampling: DraftSampling = field(compare=False)
    probs: torch.Tensor | None = field(compare=False)
    """`[n + 1, V']` q, or None if the row has none."""
    vocab_map: torch.Tensor | None = field(compare=False)
    confidence: tuple[float, ...] | None = field(compare=False)

    @property
    def depths(self) -> list[int]:
        """The depth of every node; children of the last committed token have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def probs_of(self, node: int, vocab_size: int) -> torch.Tensor:
        """Return the distribution `[V]` over target ids that a node was drawn from; handles sampling without replacement."""
        assert self.probs is not None
        probs = self.probs[self.parents[node] + 1].double()
        if self.vocab_map is not None:
            probs = torch.zeros(vocab_size, dtype=torch.float64).index_add_(0, self.vocab_map, probs)
        if self.sampling is DraftSampling.WITHOUT_REPLACEMENT:
            probs = probs.clone()
            for sibling in range(node):
                if self.parents[sibling] == self.parents[node]:
                    probs[self.tokens[sibling]] = 0.0
            probs = probs / probs.sum()
        return probs

    def count_standing(self, future: Sequence[int]) -> int:
        """Return how many drafted tokens would be accepted if the text continues with `future`."""
        depths = {-1: 0}
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            depth = depths.get(parent, len(future))
            if depth < len(future) and token == future[depth]:
                depths[node] = depth + 1
        return max(depths.values())

    def __str__(self) -> str:
        if self.parents == tuple(range(-1, len(self.tokens) - 1)):
            return str(list(self.tokens))
        return f"{list(self.tokens)} with parents {list(self.parents)}"


def rows_of(draft: object, size: int) -> list[Row]:
    """Return the rows of a draft unchanged.

    Fails the running test if it is not a draft for a batch of `size` rows, or if its rows are malformed.
    """
    try:
        check_draft(draft, [_ANY] * size, _ANY)
    except DraftError as error:
        broken(str(error))
    assert isinstance(draft, Draft)
    ids = _host(draft.token_ids, "token_ids").tolist()
    if draft.num_nodes is not None:
        ids = [row[:count] for row, count in zip(ids, draft.num_nodes, strict=True)]
    links = None if draft.parents is None else _host(draft.parents, "parents").tolist()
    return [_row(draft, index, ids[index], None if links is None else links[index]) for index in range(size)]


def _row(draft: Draft, index: int, ids: list[int], links: list[int] | None) -> Row:
    length = len(ids)
    while length and ids[length - 1] == PADDING_ID:
        length -= 1
    tokens = tuple(ids[:length])
    if PADDING_ID in tokens:
        broken(f"row {index} of Draft.token_ids has padding (-1) before its last node: {list(tokens)}")
    parents = tuple(range(-1, length - 1)) if links is None else tuple(links[:length])
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            broken(f"row {index}: node {node} has parent {parent}, which does not precede it")
    has_q = draft.node_probs is not None and (draft.has_probs is None or bool(draft.has_probs[index]))
    if links is not None and not has_q and (told := equal_siblings(tokens, parents)):
        broken(f"row {index}: {told}")
    probs = (
        draft.node_probs[index, : length + 1].detach().cpu()
        if has_q and draft.node_probs is not None
        else None
    )
    confidence = None if draft.confidence is None else tuple(draft.confidence[index, :length].tolist())
    vocab_map = None if draft.vocab_map is None else draft.vocab_map.cpu()
    return Row(tokens, parents, links is not None, draft.sampling, probs, vocab_map, confidence)


def _host(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if tensor.dtype != torch.int64:
        broken(f"Draft.{name} is {tensor.dtype}, not int64")
    return tensor.cpu()
