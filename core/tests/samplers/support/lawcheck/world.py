"""A target and a draft over a few ids, with distributions of their own after every text, and all drafts of a shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec import SamplingParams
from specdec.interfaces import DraftSampling, DrawnNodes, Scores, VerifyBatch
from specdec.samplers.padded_drafts import PaddedDrafts, pad_drafts

SAMPLED = SamplingParams(temperature=1.0)
CHAINS = ([-1], [-1, 0], [-1, 0, 1])
TREES = (
    [-1, -1],
    [-1, -1, -1],
    [-1, 0, 0],
    [-1, -1, 0, 1],
    [-1, 0, -1, 0],
    [-1, 0, 1, -1],
    [-1, -1, 1, 1],
    [-1, 0, 0, -1, 3],
    [-1, 0, 1, 1, -1],
    [-1, 0, -1, 1, 2],
)
"""Parents of tree shapes up to depth 3; siblings may lie apart, and subtrees between them."""


def ancestors(parents: list[int], node: int) -> list[int]:
    """Return the path from the first token to a node, the node included."""
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


@dataclass(frozen=True)
class World:
    """p and q after every text up to some length; entry l has shape `[V] * l + [V]`."""

    p: list[np.ndarray]
    q: list[np.ndarray]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.p[0].shape[0]

    def without(self, p: tuple[int, ...] = (), q: tuple[int, ...] = ()) -> World:
        """Return the world in which p and q give some ids no chance."""
        return World(_without(self.p, p), _without(self.q, q))

    @classmethod
    def random(cls, seed: int, vocab_size: int, length: int, *, zeros: float = 0.0) -> World:
        """Draw the distributions of texts up to `length` tokens; about a share `zeros` of their entries is 0."""
        rng = np.random.default_rng(seed)

        def laws() -> list[np.ndarray]:
            tables = []
            for size in range(length):
                weights = rng.gamma(0.7, size=(vocab_size,) * (size + 1)) + 1e-3
                weights *= rng.random(weights.shape) >= zeros
                weights[..., rng.integers(vocab_size)] += 1e-3
                tables.append(weights / weights.sum(-1, keepdims=True))
            return tables

        return cls(laws(), laws())

    def exact(self, length: int) -> np.ndarray:
        """Return the target's distribution of texts of some length, `[V ** length]`."""
        law = np.ones(1)
        for table in self.p[:length]:
            law = (law[:, None] * table.reshape(len(law), -1)).ravel()
        return law


def _without(tables: list[np.ndarray], ids: tuple[int, ...]) -> list[np.ndarray]:
    keep = ~np.isin(np.arange(tables[0].shape[0]), ids)
    return [table * keep / (table * keep).sum(-1, keepdims=True) for table in tables]


@dataclass(frozen=True)
class Drafts:
    """A batch of drafts of one shape (rows may be shorter), each with its probability."""

    tokens: np.ndarray
    """`[B, N]`, -1 pads."""
    parents: list[int]
    chances: np.ndarray
    """`[B]`: probability that the draft is made."""

    @property
    def lengths(self) -> np.ndarray:
        """`[B]`: nodes of each draft."""
        return (self.tokens >= 0).sum(-1)


def all_drafts(world: World, parents: list[int], sampling: DraftSampling) -> Drafts:
    """Return every assignment of ids to the nodes of a shape, with its probability under q; 1 for deterministic ones."""
    size = world.vocab_size
    tokens = np.array(list(itertools.product(range(size), repeat=len(parents))))
    chances = np.ones(len(tokens))
    if sampling is DraftSampling.DETERMINISTIC:
        return Drafts(tokens, parents, chances)
    for node, parent in enumerate(parents):
        law = laws_after(world.q, tokens, ancestors(parents, parent)).copy()
        if sampling is DraftSampling.WITHOUT_REPLACEMENT:
            for earlier in (j for j in range(node) if parents[j] == parent):
                law[np.arange(len(tokens)), tokens[:, earlier]] = 0.0
            mass = law.sum(-1, keepdims=True)
            law = np.divide(law, mass, out=np.zeros_like(law), where=mass > 0)
        chances *= law[np.arange(len(tokens)), tokens[:, node]]
    kept = chances > 0
    return Drafts(tokens[kept], parents, chances[kept])


def laws_after(tables: list[np.ndarray], tokens: np.ndarray, path: list[int]) -> np.ndarray:
    """Return `[B, V]`: the distribution after the tokens at the nodes of a path; -1 is read as 0."""
    return tables[len(path)][tuple(np.maximum(tokens[:, node], 0) for node in path)] * np.ones(
        (len(tokens), 1)
    )


def on_trial(
    world: World,
    drafts: Drafts,
    sampling: DraftSampling,
    *,
    is_chain: bool,
    dtype: torch.dtype = torch.float64,
    has_probs: list[bool] | None = None,
    vocab_size: int | None = None,
    vocab_map: list[int] | None = None,
) -> PaddedDrafts:
    """Put drafts on trial through the very code that samplers use, in double precision; arguments as for `problem`."""
    return pad_drafts(
        *problem(
            world, drafts, sampling, is_chain=is_chain, dtype=dtype, has_probs=has_probs, vocab_size=vocab_size,
            vocab_map=vocab_map,
        )
    )  # fmt: skip


def problem(
    world: World,
    drafts: Drafts,
    sampling: DraftSampling,
    *,
    is_chain: bool,
    dtype: torch.dtype = torch.float64,
    has_probs: list[bool] | None = None,
    vocab_size: int | None = None,
    vocab_map: list[int] | None = None,
) -> tuple[Scores, VerifyBatch]:
    """Return what a sampler is given for a batch of drafts; seeds are 0, 1, ...

    Args:
        world: p and q.
        drafts: what was drawn.
        sampling: how.
        is_chain: leave the parents out.
        dtype: of p and q.
        has_probs: rows that carry q; None means all.
        vocab_size: ids the target has: the first ones; None means all.
        vocab_map: target id of each of the draft's; the draft's ids are then all that q can speak of.
    """
    width = drafts.tokens.shape[1]
    known = vocab_size or world.vocab_size
    nodes = [-1, *range(width)]
    p = np.stack([laws_after(world.p, drafts.tokens, ancestors(drafts.parents, node)) for node in nodes], 1)
    lengths = drafts.lengths.tolist()
    scored = np.where(drafts.tokens < known, drafts.tokens, 0).tolist()
    rows = [row[:n] for row, n in zip(scored, lengths, strict=True)]
    is_row = np.arange(width + 1) <= drafts.lengths[:, None]
    with np.errstate(divide="ignore"):
        logits = torch.from_numpy(np.log(p[is_row][:, :known])).to(dtype)
    probs = None if sampling is DraftSampling.DETERMINISTIC else _node_probs(world, drafts).to(dtype)
    if probs is not None and vocab_map is not None:
        probs = probs[..., torch.tensor(vocab_map)]
    drawn = None
    if probs is not None:
        drawn = DrawnNodes(
            token_ids=torch.from_numpy(drafts.tokens),
            node_probs=probs,
            sampling=sampling,
            has_probs=None if has_probs is None else torch.tensor(has_probs),
            vocab_map=None if vocab_map is None else torch.tensor(vocab_map),
        )
    parents = None if is_chain else [drafts.parents[: len(row)] for row in rows]
    return Scores(logits, logits), batch_of(rows, parents, drawn)


def _node_probs(world: World, drafts: Drafts) -> torch.Tensor:
    """Return q `[B, N + 1, V]`; rows of nodes without children hold what nobody may look at."""
    parents, width = drafts.parents, drafts.tokens.shape[1]
    rows = []
    for node in [-1, *range(width)]:
        if node in parents:
            rows.append(laws_after(world.q, drafts.tokens, ancestors(parents, node)))
        else:
            rows.append(np.full((len(drafts.tokens), world.vocab_size), 7.0))
    return torch.from_numpy(np.stack(rows, 1))


def batch_of(
    nodes: Sequence[Sequence[int]],
    parents: Sequence[Sequence[int]] | None = None,
    drawn: DrawnNodes | None = None,
    *,
    seeds: list[int] | None = None,
    num_tokens: list[int] | None = None,
    params: SamplingParams = SAMPLED,
) -> VerifyBatch:
    """Return a batch with one set of sampling parameters."""
    count = len(nodes)
    return VerifyBatch(
        nodes=nodes,
        num_tokens=num_tokens or [4] * count,
        seeds=seeds or list(range(count)),
        sample_indices=[0] * count,
        sampling_params=[params] * count,
        parents=parents,
        drawn=drawn,
    )
