"""All that the host reads of a verification, in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PassMemory, RequestTable, Scores, VerdictOffsets, VerifyBatch
from specdec.logits import read_listings
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.triton.append_tokens import append_tokens
from specdec_kernels.triton.list_logprobs import list_logprobs

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
TopK = tuple[torch.Tensor, torch.Tensor]
"""`[R, num_top_k]` the most probable ids, and their log probabilities."""


class Results:
    """One tensor for all that the host reads: a kernel's results, drafted nodes, which rows are valid, and log probabilities.

    A kernel's results are numbers of accepted nodes, first invalid rows, emitted tokens and, of some kernels, accepted nodes.

    Args:
        scores: the rows.
        batch: the requests; nodes on the device are read here, and all its verdicts have room for as many tokens.
        widths: columns of each of a kernel's results per request; 0 for a number per request.
        num_tokens: most tokens of a verdict.
    """

    def __init__(self, scores: Scores, batch: VerifyBatch, widths: Sequence[int], num_tokens: int) -> None:
        size, self._num_nodes = len(batch.num_nodes), batch.num_nodes
        nodes = batch.device_nodes if any(batch.num_nodes) else None
        self._nodes = nodes if nodes is not None and nodes.num_outside is None else None
        device = scores.logits.device
        self._scores, self._num_tokens = scores, num_tokens
        self._event: torch.cuda.Event | None = None
        self._shapes = [(size, width) if width else (size,) for width in widths]
        self.listed = listed_rows(batch)
        """Rows that list log probabilities."""
        self._most = min(max(batch.num_logprobs, default=0), scores.raw_logits.shape[1])
        num_listed = len(self.listed) * num_tokens * (2 + 2 * self._most)
        num_nodes = 0 if self._nodes is None else self._nodes.nodes.numel()
        num_flags = 0 if scores.is_valid is None else len(scores.is_valid)
        self._num_top = min(batch.num_top_k, scores.raw_logits.shape[1])
        num_top = len(scores.raw_logits) * self._num_top
        sizes = [
            num_nodes,
            *(size * max(1, width) for width in widths),
            num_listed,
            -(-num_flags // 8),
            num_top,
        ]
        sizes += [-(-num_top // 2), -(-len(scores.raw_logits) // 2) if num_top else 0]
        self._places = _places(sizes)
        num_numbers = self._places[-1].stop
        passes = self._passes = batch.pass_memory or PassMemory(device, 0)
        # Behind drafted nodes, where the next pass and draft loop look for the verdict; else where the last pass left room.
        memory = _free_room(batch, passes, device) if self._nodes is None else self._nodes.memory
        if memory is not None and len(memory) >= num_numbers:
            self._all = memory[:num_numbers]
        else:
            self._all = torch.empty(num_numbers, dtype=torch.int64, device=device)
            if self._nodes is not None:
                self._all[:num_nodes].view(self._nodes.nodes.shape).copy_(self._nodes.nodes)
        _, *parts, self._lists, flags, ids, values, norms = (self._all[place] for place in self._places)
        self.parts = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        if scores.is_valid is not None:
            flags.view(torch.bool)[:num_flags].copy_(scores.is_valid)
        if num_top:
            _find_top(scores.raw_logits, ids, values, norms)

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
        """Send everything to the host, once all of it is written; it arrives whatever is launched later."""
        self._there = self._all
        if self._all.is_cuda:
            self._there = torch.empty(self._all.shape, dtype=torch.int64).pin_memory()
            self._there.copy_(self._all, non_blocking=True)
            self._event = torch.cuda.current_stream(self._all.device).record_event()

    def offsets(self, row_starts: torch.Tensor) -> VerdictOffsets | None:
        """Return where the memory of passes has the verdict; None if it is elsewhere.

        Args:
            row_starts: `[B]` first row of each request in the logits; it has those of states if these have the same rows.
        """
        if not self._passes.holds(self._all):
            return None
        counts, _, emitted, *nodes = self.parts
        offsets, states = (
            (int(counts.storage_offset()), int(emitted.storage_offset())),
            self._scores.hidden_states,
        )
        has_starts = self._passes.holds(row_starts) and (
            states is None or len(states) == len(self._scores.logits)
        )
        is_tree = self._nodes is not None and self._nodes.is_tree
        path = int(nodes[0].storage_offset()) if is_tree else -1
        starts = int(row_starts.storage_offset()) if has_starts else -1
        return VerdictOffsets(*offsets, emitted.shape[1], starts, path)

    def append_to(self, tokens: RequestTable, lines: torch.Tensor) -> None:
        """Append the emitted tokens to `lines [B]` of the committed ones."""
        counts, _, emitted, *_ = self.parts
        with kernels_on(self._all.device):
            append_tokens(tokens, lines, counts, emitted)

    def read(self) -> tuple[list[Any], list[bool] | None, dict[int, list[Any]] | None, TopK | None]:
        """Return a kernel's results as nested lists, which rows are valid, the log probabilities of the tokens of each row of
        `listed`, and `Verdict.top_k`. Waits for what was sent."""
        if self._event is not None:
            self._event.synchronize()
        everything = self._there.numpy()
        nodes, *parts, lists, flags, ids, values, norms = (everything[place] for place in self._places)
        top_k = _top_of(ids, values, norms, self._num_top) if self._num_top else None
        results = [part.reshape(shape).tolist() for part, shape in zip(parts, self._shapes, strict=True)]
        if self._nodes is not None:
            self._nodes.take(nodes.reshape(self._nodes.nodes.shape))
        is_valid = None
        if self._scores.is_valid is not None:
            is_valid = flags.view(np.bool_)[: len(self._scores.is_valid)].tolist()
        if not len(self.listed):
            return results, is_valid, None, top_k
        table, counts = lists.view(np.float64).reshape(len(self.listed), self._num_tokens, -1), results[0]
        found = zip(self.listed.tolist(), table, strict=True)  # what belongs to padding was not written
        listed = {row: read_listings(numbers[: counts[row] + 1]) for row, numbers in found}
        return results, is_valid, listed, top_k


def listed_rows(batch: VerifyBatch) -> Int64s:
    """Return the rows that list log probabilities."""
    return np.array([row for row, count in enumerate(batch.num_logprobs) if count >= 0], np.int64)


def _free_room(batch: VerifyBatch, passes: PassMemory, device: torch.device) -> torch.Tensor | None:
    """Return the part of that memory where the next pass finds results; None without, or where drafted nodes are."""
    has_nodes = batch.device_nodes is not None and any(batch.num_nodes)
    sent = [] if batch.transfer is None or has_nodes else batch.transfer.on(device)
    return passes.room if sent and passes.holds(sent[0]) else None


def _find_top(logits: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, norms: torch.Tensor) -> None:
    """Write the highest of `logits [R, V]`, of which `ids` has room for as many of each row, and each row's norm, float32."""
    num_rows, wide = len(logits), logits.float()
    highest = values.view(torch.float32)[: len(ids)].view(num_rows, -1), ids.view(num_rows, -1)
    torch.topk(wide, highest[1].shape[1], out=highest)
    torch.logsumexp(wide, -1, out=norms.view(torch.float32)[:num_rows])


def _top_of(ids: Array, values: Array, norms: Array, count: int) -> TopK:
    """Return `Verdict.top_k` of what `_find_top` wrote, on the host."""
    num_rows = len(ids) // count
    logprobs = values.view(np.float32)[: len(ids)].reshape(num_rows, count)
    logprobs = logprobs - norms.view(np.float32)[:num_rows, None]
    return torch.from_numpy(ids.reshape(num_rows, count)), torch.from_numpy(logprobs)


def _places(sizes: Sequence[int]) -> list[slice]:
    """Return the places of parts of one tensor; even ones, so that they are at addresses that kernels are compiled for."""
    starts = accumulate((size + size % 2 for size in sizes), initial=0)
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]
