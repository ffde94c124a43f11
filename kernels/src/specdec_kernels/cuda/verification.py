"""Verification by Triton kernels, with one transfer in and one out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PADDING_ID, Along, Begun, DrawnNodes, Scores, Verdict, VerifyBatch
from specdec.runner import in_inference_mode
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.cuda.results import Results, listed_rows
from specdec_kernels.triton import ChainVerdict, PathVerdict
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.strict_verify import strict_verify
from specdec_samplers import normalised

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]


class _Given(NamedTuple):
    """What every kernel reads of a batch beside the logits, on the device."""

    row_starts: torch.Tensor
    num_nodes: torch.Tensor
    temperatures: torch.Tensor
    """`[B]` float32: 0 for greedy requests, 1 for others, whose logits have their temperature applied."""
    keys: NoiseKeys
    listed: torch.Tensor
    """Rows that list log probabilities."""
    is_drawn: torch.Tensor
    """`[B]` bool: requests whose nodes were drawn from q, as far as the host knows."""
    lines: torch.Tensor
    """`[B]` of requests in the table of tokens; `[0]` without one."""
    token_ids: torch.Tensor
    parents: torch.Tensor | None


class _OnDevice(ABC):
    """A verification that synchronises once, after it has begun."""

    takes_any_rows = True
    moved = 3

    def __call__(self, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        begun = self.begin(scores, batch)
        return None if begun is None else begun()

    @abstractmethod
    def begin(self, scores: Scores, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; see `Begins`."""


class WalkOnDevice(_OnDevice):
    """Verifies chains or trees along the target's drawn tokens. None for a batch without requests."""

    def arrays(self, batch: VerifyBatch) -> list[Array]:
        """See `ReadsAhead.arrays`."""
        return _arrays(batch)

    @in_inference_mode
    def begin(self, scores: Scores, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; see `Begins`."""
        size = len(batch.num_nodes)
        if not size:
            return None
        width = _width(batch)
        widths = (0, 0, width + 1, width) if width else (0, 0, 1)
        results = Results(scores, batch, widths, width + 1)
        given = _given(scores, batch)
        num_accepted, first_unsound, tokens, *paths = results.parts
        nodes = paths[0] if width else scores.logits.new_empty((size, 0), dtype=torch.int64)
        out = PathVerdict(num_accepted, tokens, nodes, first_unsound)
        read = given.token_ids, given.row_starts, given.num_nodes, given.temperatures, given.keys
        with kernels_on(scores.logits.device):
            strict_verify(scores.logits, *read, parents=given.parents, out=out)
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, nodes, out.token_ids)
        paths_out = nodes if batch.has_trees else None
        return _begun(results, scores, batch, given, paths_out)


class JudgeOnDevice(_OnDevice):
    """Verifies chains by a kernel that compares p and q. None for batches that the kernels do not take.

    Args:
        operation: `rejection_verify` or `block_verify`.
    """

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._greedy = WalkOnDevice()
        self._last_map = torch.empty(0), torch.empty(0)
        """The map of the last draft with a vocabulary of its own, and the opposite one; see `_draft_ids`."""

    def arrays(self, batch: VerifyBatch) -> list[Array]:
        """See `ReadsAhead.arrays`."""
        is_taken = batch.is_all_greedy or _is_for_kernels(batch)
        return _arrays(batch) if is_taken else []

    @in_inference_mode
    def begin(self, scores: Scores, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; see `Begins`."""
        if batch.is_all_greedy:  # the longest path of best ids, as `strict` finds it
            return self._greedy.begin(scores, batch)
        if not _is_for_kernels(batch):
            return None
        drawn, width = batch.drawn, _width(batch)
        results = Results(scores, batch, (0, 0, width + 1), width + 1)
        given = _given(scores, batch)
        judge = getattr(import_module(f"specdec_kernels.triton.{self._operation}"), self._operation)
        ids, q = given.token_ids, dict[str, torch.Tensor | None]()
        if drawn is not None and drawn.node_probs.shape[2] > 0:
            is_drawn = given.is_drawn
            if drawn.has_probs is not None and drawn.has_probs.device.type != "cpu":
                is_drawn = is_drawn & drawn.has_probs.to(is_drawn.device)
            if batch.device_nodes is None:
                ids = torch.where(is_drawn[:, None], drawn.token_ids.to(ids.device), ids)
            names = None if drawn.vocab_map is None else self._draft_ids(drawn.vocab_map, scores.logits)
            q = {"draft_probs": _probs(drawn, scores.logits), "has_probs": is_drawn, "draft_ids": names}
        read = ids, given.row_starts, given.num_nodes, given.temperatures, given.keys
        num_accepted, first_unsound, tokens = results.parts
        with kernels_on(scores.logits.device):
            judge(scores.logits, *read, **q, out=ChainVerdict(num_accepted, tokens, first_unsound))
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, None, tokens)
        return _begun(results, scores, batch, given)

    def _draft_ids(self, vocab_map: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return `[V]` the draft's id of each of the target's, -1 for none; made once for the map of a proposer."""
        known, ids = self._last_map
        if known is not vocab_map or ids.shape != logits.shape[1:] or ids.device != logits.device:
            ids = torch.full(logits.shape[1:], -1, device=logits.device)
            ids[vocab_map.to(ids.device)] = torch.arange(len(vocab_map), device=ids.device)
            self._last_map = vocab_map, ids
        return ids


def _begun(
    results: Results, scores: Scores, batch: VerifyBatch, given: _Given, paths: torch.Tensor | None = None
) -> Begun:
    """Send what was decided, and begin what follows from it on the device; `paths` see `Verdict.paths`."""
    results.send()
    if batch.tokens is not None:
        results.append_to(batch.tokens, given.lines)
    results.begin_next(given.row_starts)
    read = partial(_read, results, scores, batch, paths)
    return Begun(results.parts[2], read, results.places, batch.tokens is not None, paths)


def _read(results: Results, scores: Scores, batch: VerifyBatch, paths: torch.Tensor | None = None) -> Verdict:
    """Return the verdict of results; `paths` see `Verdict.paths`."""
    (counts, unsound, emitted, *found), is_sound, logprobs, top_k = results.read()
    nodes = found[0] if found else [range(count) for count in counts]
    accepted = [[*row[:count]] for row, count in zip(nodes, counts, strict=True)]
    tokens = [row[: count + 1] for row, count in zip(emitted, counts, strict=True)]
    is_sound = _soundness(scores, batch, accepted, unsound, is_sound)
    return Verdict(accepted, tokens, is_sound, logprobs, top_k, paths)


def _soundness(
    scores: Scores,
    batch: VerifyBatch,
    accepted: Sequence[Sequence[int]],
    first_unsound: Sequence[int],
    is_sound: list[bool] | None,
) -> list[bool] | None:
    """Return which rows are sound, as far as tokens were drawn from them; None if all are.

    Args:
        scores: the rows.
        batch: which row is whose.
        accepted: nodes of each request.
        first_unsound: see `PathVerdict.first_unsound`.
        is_sound: see `Scores.is_sound`.
    """
    if max(first_unsound) < 0:
        return is_sound
    found = [True] * len(scores.logits) if is_sound is None else is_sound
    for row, (path, place) in enumerate(zip(accepted, first_unsound, strict=True)):
        if place >= 0:
            found[batch.row_of(row, (-1, *path)[place])] = False
    return found


def _is_for_kernels(batch: VerifyBatch) -> bool:
    """Return whether the kernels that compare p and q take a batch."""
    return bool(batch.num_nodes) and not (batch.is_all_greedy or batch.has_trees)


def _probs(drawn: DrawnNodes, logits: torch.Tensor) -> torch.Tensor:
    """Return q `[B, N + 1, V']` where the logits are, as the kernels take it."""
    kind = torch.float64 if drawn.node_probs.dtype is torch.float64 else torch.float32
    probs = normalised(drawn.node_probs, torch.empty(0, dtype=kind, device=logits.device))
    return probs if probs.stride(-1) == 1 else probs.contiguous()


def _width(batch: VerifyBatch) -> int:
    """Return the number of columns of the drafted ids; of those on the device all, so that results stay where they are."""
    if batch.device_nodes is not None and any(batch.num_nodes):
        return batch.device_nodes.width
    return max(batch.num_nodes) if batch.drawn is None else batch.drawn.token_ids.shape[1]


def _arrays(batch: VerifyBatch) -> list[Array]:
    """Return what `_given` takes, on the host: no nodes that are not read, and parents only of trees."""
    if not batch.num_nodes:
        return []
    numbers = [batch.row_starts, batch.num_nodes, batch.seeds, batch.num_tokens, batch.sample_indices]
    is_sampled = np.array([not params.is_greedy for params in batch.sampling_params])
    width, flags = _width(batch), None if batch.drawn is None else batch.drawn.has_probs
    rows = [] if batch.device_nodes is not None and width else [batch.nodes]
    if batch.parents is not None and width:
        rows.append(batch.parents)
    return [
        *np.array(numbers, np.int64),
        is_sampled.astype(np.float32),
        listed_rows(batch),
        np.array(batch.lines, np.int64),
        is_sampled & flags.numpy() if flags is not None and flags.device.type == "cpu" else is_sampled,
        *(_padded(each, width) for each in rows),
    ]


def _given(scores: Scores, batch: VerifyBatch) -> _Given:
    """Return what the kernels read of a batch: sent with the pass, or sent now."""
    device = scores.logits.device
    known = [] if batch.along is None else batch.along.on(device)
    arrays = known or Along(_arrays(batch)).on(device)
    starts, counts, seeds, positions, samples, heat, listed, lines, is_drawn, *rows = arrays
    width = _width(batch)
    if batch.device_nodes is not None and width:
        rows = [*batch.device_nodes.nodes.to(device)]
    ids, *parents = rows
    keys = NoiseKeys(seeds, positions, samples)
    above = parents[0] if parents else None
    return _Given(starts, counts, heat, keys, listed, is_drawn, lines, ids, above)


def _padded(rows: Sequence[Sequence[int]], width: int) -> Int64s:
    """Return rows padded to `[B, width]`."""
    padded = np.full((len(rows), width), PADDING_ID, np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
