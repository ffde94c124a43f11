"""Chooses drafted tokens from a draft's logits: greedily, with the noise of `strict` (coupled), or by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import ProposeBatch, sent, sent_together
from specdec.logits import apply_temperature_and_truncation
from specdec_runtime.drafting.reading import read_together
from specdec_runtime.drafting.vocabulary import DraftVocabulary


@dataclass(frozen=True, slots=True)
class DraftPosition:
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

    def choose(self, logits: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch) -> Choice:
        """Choose siblings at each position.

        Args:
            logits: `[R, Vd]` the draft's.
            positions: `[R]`.
            batch: the step's batch.
        """
        allowed, closed = self._masked(self._vocabulary.restrict(logits), positions, batch)
        params = [batch.sampling_params[position.row] for position in positions]
        is_greedy = self._method == "greedy" or all(p.is_greedy for p in params)
        if not is_greedy:
            allowed = apply_temperature_and_truncation(allowed.float(), params, [1] * len(positions))
        most = max(position.num_wanted for position in positions)
        probs = torch.softmax(allowed.float(), -1) if self._wants_confidence else None
        draft_probs = None
        if is_greedy:
            indices = _best(allowed, most)
        else:
            indices, draft_probs = self._drawn(allowed, positions, batch, most)
            flags = [p.is_greedy for p in params]
            if any(flags):
                is_greedy_row = sent(torch.tensor(flags), allowed.device)[:, None]
                indices = torch.where(is_greedy_row, _best(allowed, most), indices)
        counts = [0 if index in closed else position.num_wanted for index, position in enumerate(positions)]
        # Forbidden or cut ids must not become siblings.
        possible = allowed.gather(1, indices) > -torch.inf if most > 1 else None
        confidences = None if probs is None else probs.gather(1, indices)
        return self._choice(indices, counts, possible, draft_probs, confidences)

    def rank(self, logits: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch) -> Choice:
        """Return the most probable siblings at each position with the confidence in each, as point masses.

        If tokens are coupled, confidence includes the noise of `strict`, because the target chooses with that noise.

        Args:
            logits: `[R, Vd]` the draft's.
            positions: `[R]`.
            batch: the step's batch.
        """
        allowed, closed = self._masked(self._vocabulary.restrict(logits), positions, batch)
        params = [batch.sampling_params[position.row] for position in positions]
        scores = torch.log_softmax(
            apply_temperature_and_truncation(allowed.float(), params, [1] * len(positions)), -1
        )
        if self._method == "coupled":
            self._add_noise(scores, positions, batch)
        probs, indices = scores.softmax(-1).topk(max(position.num_wanted for position in positions), -1)
        counts = [0 if index in closed else position.num_wanted for index, position in enumerate(positions)]
        return self._choice(indices, counts, probs > 0, None, probs)

    def _choice(
        self,
        indices: torch.Tensor,
        counts: list[int],
        possible: torch.Tensor | None,
        draft_probs: torch.Tensor | None,
        confidences: torch.Tensor | None,
    ) -> Choice:
        """Return the choice of the first `counts[i]` of row i's indices into V', `[R, most]`, with as many confidences.

        Only as many as `possible [R, most]` begins with are chosen. All is read from the device by one transfer.
        """
        given = [tensor for tensor in (indices, confidences, possible) if tensor is not None]
        read = read_together(given)
        if possible is not None:
            most = read[-1].cumprod(1).sum(1).astype(int).tolist()
            counts = list(map(min, counts, most))
        rows = read[0].astype(np.int64).tolist()
        names = [self._vocabulary.name(row[:n]) for row, n in zip(rows, counts, strict=True)]
        values = None
        if confidences is not None:
            values = [row[:count] for row, count in zip(read[1].tolist(), counts, strict=True)]
        return Choice([name[0] for name in names], [name[1] for name in names], draft_probs, values)

    def _add_noise(
        self, scores: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch
    ) -> None:
        """Add the noise of each position to `scores [R, V']`; greedy requests get none."""
        for depth, members in _by_depth(positions).items():
            members = [i for i in members if not batch.sampling_params[positions[i].row].is_greedy]
            if not members:
                continue
            rows = sorted({positions[i].row for i in members})
            noise = batch.draws.coupled_noise(rows, depth, self._vocabulary.vocab_size)
            which = [rows.index(positions[i].row) for i in members]
            at, of = sent_together([np.array(members), np.array(which)], scores.device)
            scores.index_add_(0, at, self._vocabulary.narrow(noise)[of])

    def _drawn(
        self, logits: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch, most: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return `[R, most]` indices into V', drawn without replacement, and the first draw's distribution if sampled."""
        rows = [position.row for position in positions]
        left = logits
        columns = []
        probs = None
        for sibling in range(most):
            if self._method == "coupled":
                index = self._coupled(left, positions, batch)
            else:
                index, q = _sample(left, positions, rows, batch, sibling)
                probs = q if probs is None else probs
            columns.append(index)
            if sibling + 1 < most:
                left = _without(left, index)
        return torch.stack(columns, 1), probs

    def _coupled(
        self, logits: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch
    ) -> torch.Tensor:
        """Choose with the noise of `strict` at each position; the positions of one call may differ in depth."""
        wide = self._vocabulary.spread(logits)
        by_depth = _by_depth(positions)
        if len(by_depth) == 1:
            (depth,) = by_depth
            return self._vocabulary.index_of(
                batch.draws.coupled(wide, [position.row for position in positions], depth)
            )
        chosen = torch.empty(len(positions), dtype=torch.int64, device=logits.device)
        for depth, members in by_depth.items():
            at = sent(torch.tensor(members), logits.device)
            chosen[at] = batch.draws.coupled(wide[at], [positions[i].row for i in members], depth)
        return self._vocabulary.index_of(chosen)

    def _masked(
        self, logits: torch.Tensor, positions: Sequence[DraftPosition], batch: ProposeBatch
    ) -> tuple[torch.Tensor, set[int]]:
        """Mask ids that a request's grammar forbids; returns logits, and the positions where it allows no token."""
        closed: set[int] = set()
        if batch.allowed_after is None:
            return logits, closed
        ids = self._vocabulary.target_ids
        ids = torch.arange(logits.shape[1]) if ids is None else ids.cpu()
        out = logits.clone()
        for index, position in enumerate(positions):
            bits = batch.allowed(position.row, position.path)
            if bits is None:
                continue
            is_allowed = (bits.cpu()[ids >> 5] >> (ids & 31).to(torch.int32)) & 1 == 1
            left = out[index].masked_fill(~is_allowed.to(out.device), -torch.inf)
            if bool((left > -torch.inf).any()):
                out[index] = left
            else:
                closed.add(index)
        return out, closed


def _by_depth(positions: Sequence[DraftPosition]) -> dict[int, list[int]]:
    """Return the indices of the places by the depth of the nodes that are chosen there."""
    found: dict[int, list[int]] = {}
    for index, position in enumerate(positions):
        found.setdefault(len(position.path) + 1, []).append(index)
    return found


def _best(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices `[R, count]` of the highest logits, best first."""
    if count == 1:
        return logits.argmax(-1, keepdim=True)
    return logits.topk(min(count, logits.shape[1]), -1).indices


def _sample(
    logits: torch.Tensor,
    positions: Sequence[DraftPosition],
    rows: list[int],
    batch: ProposeBatch,
    sibling: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one index per position; the positions of one call may differ in node index."""
    nodes = np.array([position.node + sibling for position in positions])
    if (nodes == nodes[0]).all():
        return batch.draws.sample(logits, rows, int(nodes[0]))
    index = torch.empty(len(positions), dtype=torch.int64, device=logits.device)
    probs = torch.empty_like(logits, dtype=torch.float32)
    for node in sorted(set(nodes.tolist())):
        members = np.flatnonzero(nodes == node)
        at = sent(torch.from_numpy(members), logits.device)
        index[at], probs[at] = batch.draws.sample(logits[at], [rows[i] for i in members], node)
    return index, probs


def _without(logits: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Return logits with one taken index per row masked, except in rows where nothing else is left."""
    left = logits.scatter(1, taken[:, None], -torch.inf)
    is_empty = (left == -torch.inf).all(-1, keepdim=True)
    return torch.where(is_empty, logits, left)
