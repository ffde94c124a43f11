"""Verification by Triton kernels, with one transfer in and one out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PADDING_ID, Along, CheckedDraft, DrawnNodes, Scores, Verdict, VerifyBatch
from specdec.logits import read_listings
from specdec.runner import in_inference_mode
from specdec_kernels.begun import Begun
from specdec_kernels.cuda.arriving import Arriving
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.cuda.pass_memory import Judged, PassMemory, Places, memory_of
from specdec_kernels.triton import ChainVerdict, PathVerdict
from specdec_kernels.triton.list_logprobs import list_logprobs
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.strict_verify import strict_verify
from specdec_samplers import normalised

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]


class _Results:
    """One tensor for all that the host reads: a kernel's results, drafted nodes, which rows are sound, and log probabilities.

    Args:
        scores: the rows.
        draft: its nodes are read here if the host has not read them.
        widths: columns of each result per request; 0 for a number per request.
        batch: the requests; all its verdicts have room for as many tokens.
        num_tokens: most tokens of a verdict.
    """

    def __init__(
        self, scores: Scores, draft: CheckedDraft, widths: Sequence[int], batch: VerifyBatch, num_tokens: int
    ) -> None:
        size = len(batch.num_nodes)
        unread = draft.unread if any(batch.num_nodes) else None
        self._unread = unread if unread is not None and unread.num_outside is None else None
        device = scores.logits.device
        self._scores, self._num_tokens = scores, num_tokens
        self._shapes = [(size, width) if width else (size,) for width in widths]
        self.listed = _listed(batch)
        """Rows that list log probabilities."""
        self._most = min(max(batch.num_logprobs, default=0), scores.raw_logits.shape[1])
        num_listed = len(self.listed) * num_tokens * (2 + 2 * self._most)
        num_nodes = 0 if self._unread is None else self._unread.nodes.numel()
        num_flags = 0 if scores.is_sound is None else len(scores.is_sound)
        sizes = [num_nodes, *(size * max(1, width) for width in widths), num_listed, -(-num_flags // 8)]
        self._places = _places(sizes)
        num_numbers = self._places[-1].stop
        memory = _free_room(draft, device) if self._unread is None else self._unread.memory
        self._memory: PassMemory | None = None
        self._row_starts = -1
        if memory is not None and len(memory) >= num_numbers:
            self._all = memory[:num_numbers]
            if self._unread is not None:  # of which it has the nodes
                self._memory = memory_of(memory)
        else:
            self._all = torch.empty(num_numbers, dtype=torch.int64, device=device)
            if self._unread is not None:
                self._all[:num_nodes].view(self._unread.nodes.shape).copy_(self._unread.nodes)
        _, *parts, self._lists, flags = (self._all[place] for place in self._places)
        self.parts = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        if scores.is_sound is not None:
            flags.view(torch.bool)[:num_flags].copy_(scores.is_sound)

    def list_logprobs(
        self, listed: torch.Tensor, starts: torch.Tensor, nodes: torch.Tensor | None, token_ids: torch.Tensor
    ) -> None:
        """List log probabilities of all verdicts' tokens, as far as they go.

        Args:
            listed: `listed` on the device.
            starts: `[B]` first row of each request.
            nodes: `[B, num_tokens - 1]` accepted nodes, with padding; None for chains.
            token_ids: `[B, num_tokens]` emitted tokens, with padding.
        """
        out = self._lists.view(torch.float64).view(len(listed), self._num_tokens, -1)
        with kernels_on(out.device):
            list_logprobs(self._scores.raw_logits, starts, nodes, token_ids, listed, self._most, out=out)

    def send(self) -> None:
        """Send everything to the host, once all of it is written."""
        self._arriving = Arriving(self._all)

    def begin_next(self, tokens: int, given: _Given) -> None:
        """Begin the next draft, if the last one was a chain and nothing of the host is needed; `tokens` see `read`."""
        memory, states = self._memory, self._scores.hidden_states
        if memory is None or given.parents is not None:
            return
        if states is not None and len(states) != len(self._scores.logits):
            return
        if memory_of(given.row_starts) is memory:
            self._row_starts = int(given.row_starts.storage_offset())
        if memory.next_loop is not None:
            memory.next_loop(self._verdict(tokens), len(given.row_starts))

    def _verdict(self, tokens: int) -> Places:
        """Return where the verdict is in the memory of the pass; `tokens` see `read`."""
        counts, emitted = self.parts[0], self.parts[tokens]
        offsets = int(counts.storage_offset()), int(emitted.storage_offset())
        return Places(*offsets, emitted.shape[1], self._row_starts)

    def read(self, tokens: int) -> tuple[list[Any], list[bool] | None, dict[int, list[Any]] | None]:
        """Return the results, counts of accepted nodes first and the emitted tokens at `tokens`, as nested lists, the flags,
        and the log probabilities of the tokens of each row of `listed`. Waits for what was sent."""
        everything = self._arriving.read()
        nodes, *parts, lists, flags = (everything[place] for place in self._places)
        results = [part.reshape(shape).tolist() for part, shape in zip(parts, self._shapes, strict=True)]
        if self._unread is not None:
            self._unread.take(nodes.reshape(self._unread.nodes.shape).tolist())
        if self._memory is not None:
            self._memory.judged = Judged(results[0], results[tokens], self._verdict(tokens))
        is_sound = None
        if self._scores.is_sound is not None:
            is_sound = flags.view(np.bool_)[: len(self._scores.is_sound)].tolist()
        if not len(self.listed):
            return results, is_sound, None
        table, counts = lists.view(np.float64).reshape(len(self.listed), self._num_tokens, -1), results[0]
        found = zip(self.listed.tolist(), table, strict=True)  # what belongs to padding was not written
        return results, is_sound, {row: read_listings(numbers[: counts[row] + 1]) for row, numbers in found}


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
    token_ids: torch.Tensor
    parents: torch.Tensor | None


class WalkOnDevice:
    """Verifies chains or trees along the target's drawn tokens; synchronises once. None for a batch without requests."""

    takes_any_rows = True

    def arrays(self, draft: CheckedDraft, batch: VerifyBatch) -> list[Array]:
        """See `ReadsAhead.arrays`."""
        return _arrays(draft, batch, _row_starts(batch))

    def __call__(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        begun = self.begin(scores, draft, batch)
        return None if begun is None else begun()

    @in_inference_mode
    def begin(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; see `Begins`."""
        size = len(batch.num_nodes)
        if not size:
            return None
        width = _width(draft, batch)
        widths = (0, 0, width + 1, width) if width else (0, 0, 1)
        results = _Results(scores, draft, widths, batch, width + 1)
        given = _given(scores, draft, batch)
        num_accepted, first_unsound, tokens, *paths = results.parts
        nodes = paths[0] if width else scores.logits.new_empty((size, 0), dtype=torch.int64)
        out = PathVerdict(num_accepted, tokens, nodes, first_unsound)
        read = given.token_ids, given.row_starts, given.num_nodes, given.temperatures, given.keys
        with kernels_on(scores.logits.device):
            strict_verify(scores.logits, *read, parents=given.parents, out=out)
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, nodes, out.token_ids)
        results.send()
        results.begin_next(2, given)
        paths_out = None if draft.parents is None else nodes
        return Begun(tokens, partial(_read, results, scores, paths_out))


class JudgeOnDevice:
    """Verifies chains by a kernel that compares p and q; synchronises once. None for batches that the kernels do not take.

    Args:
        operation: `rejection_verify` or `block_verify`.
    """

    takes_any_rows = True

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._greedy = WalkOnDevice()
        self._last_map = torch.empty(0), torch.empty(0)
        """The map of the last draft with a vocabulary of its own, and the opposite one; see `_draft_ids`."""

    def arrays(self, draft: CheckedDraft, batch: VerifyBatch) -> list[Array]:
        """See `ReadsAhead.arrays`."""
        is_taken = batch.is_all_greedy or _is_for_kernels(draft, batch)
        return _arrays(draft, batch, _row_starts(batch)) if is_taken else []

    def __call__(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        begun = self.begin(scores, draft, batch)
        return None if begun is None else begun()

    @in_inference_mode
    def begin(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; see `Begins`."""
        if batch.is_all_greedy:  # the longest path of best ids, as `strict` finds it
            return self._greedy.begin(scores, draft, batch)
        if not _is_for_kernels(draft, batch):
            return None
        drawn, width = draft.drawn, _width(draft, batch)
        results = _Results(scores, draft, (0, 0, width + 1), batch, width + 1)
        given = _given(scores, draft, batch)
        judge = getattr(import_module(f"specdec_kernels.triton.{self._operation}"), self._operation)
        ids, q = given.token_ids, dict[str, torch.Tensor | None]()
        if drawn is not None and drawn.node_probs.shape[2] > 0:
            is_drawn = given.is_drawn
            if drawn.has_probs is not None and drawn.has_probs.device.type != "cpu":
                is_drawn = is_drawn & drawn.has_probs.to(is_drawn.device)
            if draft.unread is None:
                ids = torch.where(is_drawn[:, None], drawn.token_ids.to(ids.device), ids)
            names = None if drawn.vocab_map is None else self._draft_ids(drawn.vocab_map, scores.logits)
            q = {"draft_probs": _probs(drawn, scores.logits), "has_probs": is_drawn, "draft_ids": names}
        read = ids, given.row_starts, given.num_nodes, given.temperatures, given.keys
        num_accepted, first_unsound, tokens = results.parts
        with kernels_on(scores.logits.device):
            judge(scores.logits, *read, **q, out=ChainVerdict(num_accepted, tokens, first_unsound))
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, None, tokens)
        results.send()
        results.begin_next(2, given)
        return Begun(tokens, partial(_read, results, scores))

    def _draft_ids(self, vocab_map: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return `[V]` the draft's id of each of the target's, -1 for none; made once for the map of a proposer."""
        known, ids = self._last_map
        if known is not vocab_map or ids.shape != logits.shape[1:] or ids.device != logits.device:
            ids = torch.full(logits.shape[1:], -1, device=logits.device)
            ids[vocab_map.to(ids.device)] = torch.arange(len(vocab_map), device=ids.device)
            self._last_map = vocab_map, ids
        return ids


def _read(results: _Results, scores: Scores, paths: torch.Tensor | None = None) -> Verdict:
    """Return the verdict of results: numbers of accepted nodes, first unsound rows, emitted tokens and, of `strict`, nodes.

    Args:
        results: the results.
        scores: the rows.
        paths: see `Verdict.paths`.
    """
    (counts, unsound, emitted, *found), is_sound, logprobs = results.read(2)
    nodes = found[0] if found else [range(count) for count in counts]
    accepted = [[*row[:count]] for row, count in zip(nodes, counts, strict=True)]
    tokens = [row[: count + 1] for row, count in zip(emitted, counts, strict=True)]
    is_sound = _soundness(scores, accepted, unsound, is_sound)
    return Verdict(accepted, tokens, is_sound, logprobs, paths)


def _soundness(
    scores: Scores,
    accepted: Sequence[Sequence[int]],
    first_unsound: Sequence[int],
    is_sound: list[bool] | None,
) -> list[bool] | None:
    """Return which rows are sound, as far as tokens were drawn from them; None if all are.

    Args:
        scores: the rows.
        accepted: nodes of each request.
        first_unsound: see `PathVerdict.first_unsound`.
        is_sound: see `Scores.is_sound`.
    """
    if max(first_unsound) < 0:
        return is_sound
    found = [True] * len(scores.logits) if is_sound is None else is_sound
    for row, (path, place) in enumerate(zip(accepted, first_unsound, strict=True)):
        if place >= 0:
            found[scores.row_of(row, (-1, *path)[place])] = False
    return found


def _free_room(draft: CheckedDraft, device: torch.device) -> torch.Tensor | None:
    """Return the part of the pass's memory where the next pass finds results; None without, or where drafted nodes are."""
    sent = [] if draft.along is None or any(draft.num_nodes) else draft.along.on(device)
    memory = memory_of(sent[0]) if sent else None
    return None if memory is None else memory.room


def _is_for_kernels(draft: CheckedDraft, batch: VerifyBatch) -> bool:
    """Return whether the kernels that compare p and q take a batch."""
    return bool(batch.num_nodes) and not (batch.is_all_greedy or draft.parents is not None)


def _probs(drawn: DrawnNodes, logits: torch.Tensor) -> torch.Tensor:
    """Return q `[B, N + 1, V']` where the logits are, as the kernels take it."""
    kind = torch.float64 if drawn.node_probs.dtype is torch.float64 else torch.float32
    probs = normalised(drawn.node_probs, torch.empty(0, dtype=kind, device=logits.device))
    return probs if probs.stride(-1) == 1 else probs.contiguous()


def _width(draft: CheckedDraft, batch: VerifyBatch) -> int:
    """Return the number of columns of the drafted ids; of those on the device all, so that results stay where they are."""
    if draft.unread is not None and any(batch.num_nodes):
        return draft.unread.width
    return max(batch.num_nodes) if draft.drawn is None else draft.drawn.token_ids.shape[1]


def _row_starts(batch: VerifyBatch) -> list[int]:
    """Return the first row of each request, if their rows follow each other."""
    return [0, *accumulate(count + 1 for count in batch.num_nodes)][:-1]


def _listed(batch: VerifyBatch) -> Int64s:
    """Return the rows that list log probabilities."""
    return np.array([row for row, count in enumerate(batch.num_logprobs) if count >= 0], np.int64)


def _arrays(draft: CheckedDraft, batch: VerifyBatch, row_starts: Sequence[int]) -> list[Array]:
    """Return what `_given` takes, on the host: no nodes of a draft that is not read, and parents only of trees."""
    if not batch.num_nodes:
        return []
    numbers = [row_starts, batch.num_nodes, batch.seeds, batch.num_tokens, batch.sample_indices]
    is_sampled = np.array([not params.is_greedy for params in batch.sampling_params])
    width, flags = _width(draft, batch), None if draft.drawn is None else draft.drawn.has_probs
    rows = [] if draft.unread is not None and width else [draft.rows]
    if draft.parents is not None and draft.unread is None and width:
        rows.append(draft.parents)
    return [
        *np.array(numbers, np.int64),
        is_sampled.astype(np.float32),
        _listed(batch),
        is_sampled & flags.numpy() if flags is not None and flags.device.type == "cpu" else is_sampled,
        *(_padded(each, width) for each in rows),
    ]


def _given(scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> _Given:
    """Return what the kernels read of a batch: sent with the pass, or sent now."""
    device, along = scores.logits.device, draft.along
    known = [] if along is None or [*scores.row_starts] != _row_starts(batch) else along.on(device)
    starts, counts, seeds, positions, samples, heat, listed, is_drawn, *rows = known or Along(
        _arrays(draft, batch, scores.row_starts)
    ).on(device)
    width = _width(draft, batch)
    if draft.unread is not None and width:
        rows = [*draft.unread.nodes.to(device)]
    ids, *parents = rows
    keys = NoiseKeys(seeds, positions, samples)
    above = None if draft.parents is None or not width else parents[0]
    return _Given(starts, counts, heat, keys, listed, is_drawn, ids, above)


def _places(sizes: Sequence[int]) -> list[slice]:
    """Return the places of parts of one tensor; even ones, so that they are at addresses that kernels are compiled for."""
    starts = accumulate((size + size % 2 for size in sizes), initial=0)
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]


def _padded(rows: Sequence[Sequence[int]], width: int) -> Int64s:
    """Return rows padded to `[B, width]`."""
    padded = np.full((len(rows), width), PADDING_ID, np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
