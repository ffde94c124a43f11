"""Chooses drafted tokens from a draft's logits: greedily, with the noise of `strict` (coupled), or by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import ProposeBatch
from specdec.logits import apply_temperature_and_truncation
from specdec_drafting.vocabulary import DraftVocabulary


@dataclass(frozen=True, slots=True)
class Place:
    """The position at which a request's draft continues."""

    row: int
    """Row of the batch."""
    path: tuple[int, ...]
    """Drafted tokens before it, as the target's ids."""
    node: int
    """Index, in its row of the draft, of the first node chosen here."""
    num_wanted: int
    """Number of siblings to choose."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Siblings chosen at several positions; row i belongs to position i, and is empty if a grammar allows no token."""

    target_ids: list[list[int]]
    draft_ids: list[list[int]]
    probs: torch.Tensor | None
    """`[R, V']` the distributions they were drawn from; None if nothing was drawn."""
    confidences: list[list[float]] | None
    """The draft's own probability of each, if requested."""


class Chooser:
    """Chooses greedily, with the noise of `strict`, or by sampling; for greedy requests always greedily.

    Args:
        method: `greedy`, `coupled` or `probabilistic`.
        vocabulary: the ids that may be drafted.
        wants_confidence: whether confidences are reported.
    """

    def __init__(self, method: str, vocabulary: DraftVocabulary, *, wants_confidence: bool) -> None:
        self._method = method
        self._vocabulary = vocabulary
        self._wants_confidence = wants_confidence

    def choose(self, logits: torch.Tensor, places: Sequence[Place], batch: ProposeBatch) -> Choice:
        """Choose siblings at each position.

        Args:
            logits: `[R, Vd]` the draft's.
            places: `[R]`.
            batch: the step's batch.
        """
        allowed, closed = self._masked(self._vocabulary.restrict(logits), places, batch)
        params = [batch.sampling_params[place.row] for place in places]
        is_greedy = self._method == "greedy" or all(p.is_greedy for p in params)
        if not is_greedy:
            allowed = apply_temperature_and_truncation(allowed.float(), params, [1] * len(places))
        most = max(place.num_wanted for place in places)
        probs = torch.softmax(allowed.float(), -1) if self._wants_confidence else None
        draft_probs = None
        if is_greedy:
            indices = _best(allowed, most)
        else:
            indices, draft_probs = self._drawn(allowed, places, batch, most)
            rows = [i for i, p in enumerate(params) if p.is_greedy]
            if rows:
                indices[rows] = _best(allowed[rows], most)
        counts = [0 if index in closed else place.num_wanted for index, place in enumerate(places)]
        if most > 1:  # forbidden or cut ids must not become siblings
            possible = (allowed.gather(1, indices) > -torch.inf).long().cumprod(1).sum(1).tolist()
            counts = list(map(min, counts, possible))
        return self._choice(indices, counts, draft_probs, None if probs is None else probs.gather(1, indices))

    def rank(self, logits: torch.Tensor, places: Sequence[Place], batch: ProposeBatch) -> Choice:
        """Return the most probable siblings at each position with the confidence in each, as point masses.

        If tokens are coupled, confidence includes the noise of `strict`, because the target chooses with that noise.

        Args:
            logits: `[R, Vd]` the draft's.
            places: `[R]`.
            batch: the step's batch.
        """
        allowed, closed = self._masked(self._vocabulary.restrict(logits), places, batch)
        params = [batch.sampling_params[place.row] for place in places]
        scores = torch.log_softmax(
            apply_temperature_and_truncation(allowed.float(), params, [1] * len(places)), -1
        )
        if self._method == "coupled":
            self._add_noise(scores, places, batch)
        probs, indices = scores.softmax(-1).topk(max(place.num_wanted for place in places), -1)
        possible = (probs > 0).sum(1).tolist()
        counts = [
            0 if index in closed else min(place.num_wanted, possible[index])
            for index, place in enumerate(places)
        ]
        return self._choice(indices, counts, None, probs)

    def _choice(
        self,
        indices: torch.Tensor,
        counts: list[int],
        draft_probs: torch.Tensor | None,
        confidences: torch.Tensor | None,
    ) -> Choice:
        """Return the choice of the first `counts[i]` of row i's indices into V', `[R, most]`, with as many confidences."""
        names = [self._vocabulary.name(row[:n]) for row, n in zip(indices.tolist(), counts, strict=True)]
        values = None
        if confidences is not None:
            values = [row[:count] for row, count in zip(confidences.tolist(), counts, strict=True)]
        return Choice([name[0] for name in names], [name[1] for name in names], draft_probs, values)

    def _add_noise(self, scores: torch.Tensor, places: Sequence[Place], batch: ProposeBatch) -> None:
        """Add the noise of each position to `scores [R, V']`; greedy requests get none."""
        known: dict[tuple[int, int], torch.Tensor] = {}
        for index, place in enumerate(places):
            if batch.sampling_params[place.row].is_greedy:
                continue
            key = place.row, len(place.path) + 1
            noise = known.get(key)
            if noise is None:
                noise = batch.draws.coupled_noise([place.row], key[1], self._vocabulary.vocab_size)
                noise = known[key] = self._vocabulary.narrow(noise)[0]
            scores[index] += noise

    def _drawn(
        self, logits: torch.Tensor, places: Sequence[Place], batch: ProposeBatch, most: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return `[R, most]` indices into V', drawn without replacement, and the first draw's distribution if sampled."""
        rows = [place.row for place in places]
        left = logits
        columns = []
        probs = None
        for sibling in range(most):
            if self._method == "coupled":
                index = self._coupled(left, places, batch)
            else:
                index, q = _sample(left, places, rows, batch, sibling)
                probs = q if probs is None else probs
            columns.append(index)
            if sibling + 1 < most:
                left = _without(left, index)
        return torch.stack(columns, 1), probs

    def _coupled(self, logits: torch.Tensor, places: Sequence[Place], batch: ProposeBatch) -> torch.Tensor:
        """Choose with the noise of `strict` at each position; the positions of one call may differ in depth."""
        wide = self._vocabulary.spread(logits)
        chosen = torch.empty(len(places), dtype=torch.int64, device=logits.device)
        by_depth: dict[int, list[int]] = {}
        for index, place in enumerate(places):
            by_depth.setdefault(len(place.path), []).append(index)
        for depth, members in by_depth.items():
            rows = [places[i].row for i in members]
            part = wide if len(members) == len(places) else wide[members]
            chosen[members] = batch.draws.coupled(part, rows, depth + 1)
        return self._vocabulary.index_of(chosen)

    def _masked(
        self, logits: torch.Tensor, places: Sequence[Place], batch: ProposeBatch
    ) -> tuple[torch.Tensor, set[int]]:
        """Mask ids that a request's grammar forbids; returns logits, and the positions where it allows no token."""
        closed: set[int] = set()
        if batch.allowed_after is None:
            return logits, closed
        ids = self._vocabulary.target_ids
        ids = torch.arange(logits.shape[1]) if ids is None else ids.cpu()
        out = logits.clone()
        for index, place in enumerate(places):
            bits = batch.allowed(place.row, place.path)
            if bits is None:
                continue
            is_allowed = (bits.cpu()[ids >> 5] >> (ids & 31).to(torch.int32)) & 1 == 1
            if bool(is_allowed.any()):
                out[index].masked_fill_(~is_allowed.to(out.device), -torch.inf)
            else:
                closed.add(index)
        return out, closed


def _best(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices `[R, count]` of the highest logits, best first."""
    if count == 1:
        return logits.argmax(-1, keepdim=True)
    return logits.topk(min(count, logits.shape[1]), -1).indices


def _sample(
    logits: torch.Tensor, places: Sequence[Place], rows: list[int], batch: ProposeBatch, sibling: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one index per position; the positions of one call may differ in node index."""
    nodes = np.array([place.node + sibling for place in places])
    if (nodes == nodes[0]).all():
        return batch.draws.sample(logits, rows, int(nodes[0]))
    index = torch.empty(len(places), dtype=torch.int64, device=logits.device)
    probs = torch.empty_like(logits, dtype=torch.float32)
    for node in sorted(set(nodes.tolist())):
        members = np.flatnonzero(nodes == node).tolist()
        index[members], probs[members] = batch.draws.sample(logits[members], [rows[i] for i in members], node)
    return index, probs


def _without(logits: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Return logits with one taken index per row masked, except in rows where nothing else is left."""
    left = logits.scatter(1, taken[:, None], -torch.inf)
    is_empty = (left == -torch.inf).all(-1, keepdim=True)
    return torch.where(is_empty, logits, left)
