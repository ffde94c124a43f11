"""Drafts of every kind with exact q, for a target of four ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from specdec.engine import EngineDraws
from specdec.engine import Sequence as EngineSequence
from specdec.interfaces import Capability, CheckedDraft, Draft, DraftSampling
from specdec_testing.support.checked_draft import checked_draft

_VOCAB_SIZE = 4
_NUM_TEXTS = 8192
_TREE = (-1, -1, 0, 0, 1)
_REDUCED = (0, 2, 3)
"""Target ids of the reduced vocabulary."""


@dataclass(slots=True)
class _NoiseKey:
    """The keys of the noise; replaces an engine sequence, of which draws need only these fields."""

    seed: int
    sample_index: int
    num_tokens: int


@dataclass(frozen=True)
class Prefixes:
    """The requests of a batch: the numbers of the texts emitted so far, and the noise keys."""

    texts: torch.Tensor
    seeds: list[int]
    samples: list[int]
    num_tokens: list[int]

    def draws(self) -> EngineDraws:
        """Return the noise that the engine passes to a proposer in this step."""
        keys = map(_NoiseKey, self.seeds, self.samples, self.num_tokens)
        return EngineDraws(cast("list[EngineSequence]", list(keys)))


@dataclass(frozen=True)
class Drafted:
    """Drafts, and the text that ends at each node."""

    draft: Draft
    num_nodes: list[int]
    texts: torch.Tensor
    """`[B, N + 1]`: the request's text, then the text that ends with each node."""

    def checked(self) -> CheckedDraft:
        """Return the drafts as core verifies them."""
        return checked_draft(self.draft, _VOCAB_SIZE)

    def texts_of_rows(self) -> torch.Tensor:
        """Return the text of every logits row, without padding."""
        places = torch.arange(self.texts.shape[1])
        flat: torch.Tensor = self.texts[places[None] <= torch.tensor(self.num_nodes)[:, None]]
        return flat

    def alone(self, index: int) -> Drafted:
        """Return the draft of one request."""
        draft, rows = self.draft, slice(index, index + 1)
        one = replace(
            draft,
            token_ids=draft.token_ids[rows].clone(),
            parents=None if draft.parents is None else draft.parents[rows].clone(),
            node_probs=None if draft.node_probs is None else draft.node_probs[rows].clone(),
            has_probs=None if draft.has_probs is None else draft.has_probs[rows].clone(),
        )
        return Drafted(one, [self.num_nodes[index]], self.texts[rows])


DraftMaker = Callable[[Prefixes], Drafted]


@dataclass(frozen=True)
class Kind:
    """One kind of draft."""

    name: str
    make: DraftMaker
    needs: frozenset[Capability] = frozenset()
    """Capabilities that a sampler needs to receive such drafts."""


def no_draft(prefixes: Prefixes) -> Drafted:
    """Return empty drafts."""
    return _made(prefixes, torch.empty(len(prefixes.seeds), 0, dtype=torch.int64), None)


def sure_chain(prefixes: Prefixes) -> Drafted:
    """Return chains of one to three tokens that are a function of the text."""
    return _grown(prefixes, (-1, 0, 1), is_drawn=False, is_ragged=True)


def sure_tree(prefixes: Prefixes) -> Drafted:
    """Return trees of such tokens with distinct siblings."""
    return _grown(prefixes, _TREE, is_drawn=False)


def equal_siblings(prefixes: Prefixes) -> Drafted:
    """Return trees of such tokens in which two siblings are equal and only the later one has a child."""
    return _grown(prefixes, (-1, -1, 1, 2), is_drawn=False, is_repeated=True)


def drawn_chain(prefixes: Prefixes) -> Drafted:
    """Return chains drawn from q, one to three nodes long, independent of the drawn tokens."""
    return _grown(prefixes, (-1, 0, 1), is_ragged=True)


def iid_siblings(prefixes: Prefixes) -> Drafted:
    """Return trees whose siblings are drawn independently and may be equal."""
    return _grown(prefixes, _TREE)


def distinct_siblings(prefixes: Prefixes) -> Drafted:
    """Return trees whose siblings are drawn without replacement."""
    return _grown(prefixes, _TREE, sampling=DraftSampling.WITHOUT_REPLACEMENT)


def reduced_vocabulary(prefixes: Prefixes) -> Drafted:
    """Return chains drawn from a q over three of the four ids."""
    return _grown(prefixes, (-1, 0), ids=_REDUCED)


def mixed_rows(prefixes: Prefixes) -> Drafted:
    """Return chains, some of which (those with even seeds) carry q."""
    drawn = _grown(prefixes, (-1, 0))
    sure = _grown(prefixes, (-1, 0), is_drawn=False)
    has_probs = torch.tensor(prefixes.seeds) % 2 == 0
    ids = torch.where(has_probs[:, None], drawn.draft.token_ids, sure.draft.token_ids)
    assert drawn.draft.node_probs is not None
    probs = torch.where(has_probs[:, None, None], drawn.draft.node_probs, 0.0)
    made = _made(prefixes, ids, (-1, 0), chain=True)
    draft = replace(made.draft, sampling=DraftSampling.IID, node_probs=probs, has_probs=has_probs)
    return replace(made, draft=draft)


_USES_TREE = frozenset({Capability.TREE})
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("no draft", no_draft),
        Kind("chains without q", sure_chain),
        Kind("trees without q", sure_tree, _USES_TREE),
        Kind("trees with equal siblings", equal_siblings, _USES_TREE),
        Kind("drawn chains", drawn_chain),
        Kind("siblings drawn independently", iid_siblings, _USES_TREE),
        Kind("siblings drawn without replacement", distinct_siblings, _USES_TREE),
        Kind("chains from a reduced vocabulary", reduced_vocabulary),
        Kind("rows with and without q", mixed_rows),
    )
}
"""All kinds, by name."""


def _q_logits() -> torch.Tensor:
    """Return the draft's logits after every text; about one text in four excludes an id."""
    generator = torch.Generator().manual_seed(77)
    logits = 1.4 * torch.randn(_NUM_TEXTS, _VOCAB_SIZE, generator=generator)
    excluded = torch.randint(0, 4 * _VOCAB_SIZE, (_NUM_TEXTS,), generator=generator)
    at = (excluded < _VOCAB_SIZE).nonzero()[:, 0]
    logits[at, excluded[at]] = -torch.inf
    return logits


_Q = _q_logits()


def _grown(
    prefixes: Prefixes,
    parents: tuple[int, ...],
    *,
    is_drawn: bool = True,
    sampling: DraftSampling = DraftSampling.IID,
    is_ragged: bool = False,
    is_repeated: bool = False,
    ids: Sequence[int] = range(_VOCAB_SIZE),
) -> Drafted:
    """Grow drafts node by node."""
    size, width = len(prefixes.seeds), len(parents)
    is_chain = parents == tuple(range(-1, width - 1))
    vocab = torch.tensor(list(ids))
    texts = torch.zeros(size, width + 1, dtype=torch.int64)
    texts[:, 0] = prefixes.texts
    columns = torch.zeros(size, width, dtype=torch.int64)
    probs = torch.zeros(size, width + 1, len(vocab))
    draws, everybody = prefixes.draws(), list(range(size))
    for node, parent in enumerate(parents):
        before = texts[:, parent + 1]
        logits = _Q[before][:, vocab].clone()
        probs[:, parent + 1] = torch.softmax(logits, -1)
        rank = 0 if is_repeated else sum(1 for other in parents[:node] if other == parent)
        if not is_drawn:
            columns[:, node] = (before + rank) % len(vocab)
        else:
            if sampling is DraftSampling.WITHOUT_REPLACEMENT:
                for other in (other for other in range(node) if parents[other] == parent):
                    logits.scatter_(1, columns[:, other : other + 1], -torch.inf)
            columns[:, node] = draws.sample(logits, everybody, node)[0]
        texts[:, node + 1] = _VOCAB_SIZE * before + 1 + vocab[columns[:, node]]
    lengths = [1 + seed // 3 % width for seed in prefixes.seeds] if is_ragged else [width] * size
    made = _made(prefixes, vocab[columns], parents, texts=texts, lengths=lengths, chain=is_chain)
    if not is_drawn:
        return made
    vocab_map = vocab if len(vocab) < _VOCAB_SIZE else None
    return replace(made, draft=replace(made.draft, sampling=sampling, node_probs=probs, vocab_map=vocab_map))


def _made(
    prefixes: Prefixes,
    ids: torch.Tensor,
    parents: tuple[int, ...] | None,
    *,
    texts: torch.Tensor | None = None,
    lengths: list[int] | None = None,
    chain: bool = False,
) -> Drafted:
    size, width = ids.shape
    lengths = [width] * size if lengths is None else lengths
    if texts is None:
        texts = torch.zeros(size, width + 1, dtype=torch.int64)
        texts[:, 0] = prefixes.texts
        for node in range(width):
            texts[:, node + 1] = _VOCAB_SIZE * texts[:, node] + 1 + ids[:, node]
    is_node = torch.arange(width)[None] < torch.tensor(lengths, dtype=torch.int64)[:, None]
    ids = torch.where(is_node, ids, -1)
    links = None if chain or parents is None else torch.tensor(parents).repeat(size, 1)
    return Drafted(Draft(token_ids=ids, parents=links), lengths, texts)
