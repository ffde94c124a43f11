"""Verification on a device, with one transfer in and one out: a Triton kernel's, or torch's, which waits for nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PADDING_ID, AsyncVerdict, Scores, Transfer, Verdict, VerifyBatch
from specdec.noise import Stream, node_word
from specdec.samplers import (
    DraftProbs,
    DraftVocabulary,
    PaddedDrafts,
    Scheme,
    block_scheme,
    decide,
    node_rows,
    node_words,
    rejection_scheme,
    target_probs,
)
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.cuda.results import Results, listed_rows
from specdec_kernels.cuda.rows import multinomial
from specdec_kernels.triton import PathVerdict
from specdec_kernels.triton.noise import NoiseKeys, uniforms
from specdec_kernels.triton.strict_verify import RequestCuts, strict_verify
from specdec_runtime.runner import in_inference_mode

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
SCHEMES = {"probabilistic": rejection_scheme, "block": block_scheme}
"""By sampler."""


class _Given(NamedTuple):
    """What is read of a batch beside the logits, on the device."""

    row_starts: torch.Tensor
    num_nodes: torch.Tensor
    temperatures: torch.Tensor
    """`[B]` float32: 0 for greedy requests, 1 for others, whose logits have their temperature applied."""
    keys: NoiseKeys
    listed: torch.Tensor
    """Rows that list log probabilities."""
    is_drawn: torch.Tensor
    """`[B]` bool: requests whose nodes were drawn from q, as far as the host knows."""
    cuts: RequestCuts
    """Top-k and top-p, for rows that are not cut by them."""
    lines: torch.Tensor
    """`[B]` of requests in the table of tokens; `[0]` without one."""
    token_ids: torch.Tensor
    parents: torch.Tensor | None


class _OnDevice(ABC):
    """A verification that synchronises once, after it has begun."""

    finds_invalid_rows = True
    growing = 3

    def __call__(self, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        pending = self.begin(scores, batch)
        return None if pending is None else pending.read()

    def arrays(self, batch: VerifyBatch) -> list[Array]:
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
            np.array([params.top_k for params in batch.sampling_params], np.int64),
            np.array([params.top_p for params in batch.sampling_params], np.float32),
            is_sampled & flags.numpy() if flags is not None and flags.device.type == "cpu" else is_sampled,
            *(_padded(each, width) for each in rows),
        ]

    @abstractmethod
    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to decide a batch; see `AsyncVerify`."""

    def _given(self, scores: Scores, batch: VerifyBatch) -> _Given:
        """Return what is read of a batch: sent with the pass, or sent now."""
        device = scores.logits.device
        known = [] if batch.transfer is None else batch.transfer.on(device)
        known = known or Transfer(self.arrays(batch)).on(device)
        starts, counts, seeds, positions, samples, temperatures, *rest = known
        listed, lines, top_k, top_p, is_drawn, *rows = rest
        width = _width(batch)
        if batch.device_nodes is not None and width:
            rows = [*batch.device_nodes.nodes.to(device)]
        ids, *parents = rows
        keys = NoiseKeys(seeds, positions, samples)
        above = parents[0] if parents else None
        cuts = RequestCuts(top_k, top_p)
        return _Given(starts, counts, temperatures, keys, listed, is_drawn, cuts, lines, ids, above)


class StrictOnDevice(_OnDevice):
    """Verifies chains or trees along the target's drawn tokens. None for a batch without requests."""

    cuts = True

    @in_inference_mode
    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to decide a batch; see `AsyncVerify`."""
        size = len(batch.num_nodes)
        if not size:
            return None
        width = _width(batch)
        widths = (0, 0, width + 1, width) if width else (0, 0, 1)
        results = Results(scores, batch, widths, width + 1)
        given = self._given(scores, batch)
        num_accepted, first_invalid, tokens, *paths = results.parts
        nodes = paths[0] if width else scores.logits.new_empty((size, 0), dtype=torch.int64)
        out = PathVerdict(num_accepted, tokens, nodes, first_invalid)
        read = given.token_ids, given.row_starts, given.num_nodes, given.temperatures, given.keys
        with kernels_on(scores.logits.device):
            cuts = None if scores.is_cut else given.cuts
            strict_verify(scores.logits, *read, parents=given.parents, cuts=cuts, out=out)
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, nodes, out.token_ids)
        paths_out = nodes if batch.has_trees else None
        return _send_verdict(results, scores, batch, given, paths_out)


class RejectionOnDevice(_OnDevice):
    """Verifies chains by the scheme of a sampler that compares p and q, with torch. None for batches that it does not take.

    Args:
        scheme: makes the scheme of a batch.
    """

    def __init__(self, scheme: Callable[[PaddedDrafts], Scheme]) -> None:
        self._scheme = scheme
        self._greedy = StrictOnDevice()
        self._last_map = torch.empty(0), DraftVocabulary(torch.empty(0), 0)
        """The map of the last draft with a vocabulary of its own, and what it became."""

    def arrays(self, batch: VerifyBatch) -> list[Array]:
        """Return the arrays that verification reads on the device, in the order in which it takes them."""
        is_taken = batch.is_all_greedy or _compares_p_and_q(batch)
        return super().arrays(batch) if is_taken else []

    @in_inference_mode
    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to decide a batch; see `AsyncVerify`."""
        if batch.is_all_greedy:  # the longest path of best ids, as `strict` finds it
            return self._greedy.begin(scores, batch)
        if not _compares_p_and_q(batch):
            return None
        width = _width(batch)
        results = Results(scores, batch, (0, 0, width + 1), width + 1)
        given = self._given(scores, batch)
        padded, is_valid = self._pad(scores, batch, given)
        num_accepted, first_invalid, tokens = results.parts
        scheme = self._scheme(padded)
        with kernels_on(scores.logits.device):
            stop = decide(scheme, _accept_uniforms(given.keys, width), padded)
            torch.add(stop, 1, out=num_accepted)
            words = node_words(Stream.RESIDUAL, num_accepted)
            last = multinomial(scheme.emission(stop), given.temperatures, given.keys, words)
        # Accepted ids, then the emission at the first rejected place, then padding.
        tokens[:, :width] = padded.token_ids
        tokens.masked_fill_(padded.places > num_accepted[:, None], PADDING_ID)
        tokens.scatter_(1, num_accepted[:, None], last[:, None])
        # A row that is no numbers matters only up to the place where the verdict stopped.
        invalid = padded.places.expand(padded.size, -1).masked_fill(is_valid[padded.rows], width + 1)
        torch.amin(invalid, 1, out=first_invalid)
        first_invalid.masked_fill_(first_invalid > num_accepted, -1)
        if len(given.listed):
            results.list_logprobs(given.listed, given.row_starts, None, tokens)
        return _send_verdict(results, scores, batch, given)

    def _pad(self, scores: Scores, batch: VerifyBatch, given: _Given) -> tuple[PaddedDrafts, torch.Tensor]:
        """Return the trial of a batch, and `[R]` which rows are made of numbers; p of the others is uniform."""
        logits, width = scores.logits, _width(batch)
        rows = node_rows(given.row_starts, given.num_nodes, width)
        has_greedy = any(params.is_greedy for params in batch.sampling_params)
        probs = target_probs(logits, rows, given.temperatures == 0 if has_greedy else None)
        is_valid = probs[:, 0] == probs[:, 0]
        probs.nan_to_num_(1 / probs.shape[1])
        drawn, ids, q = batch.drawn, given.token_ids, None
        if drawn is not None and width and drawn.node_probs.shape[2] > 0:
            is_drawn, flags = given.is_drawn, drawn.has_probs
            is_on_host = flags is None or flags.device.type == "cpu"
            if flags is not None and not is_on_host:
                is_drawn = is_drawn & flags.to(is_drawn.device)
            is_all_drawn = is_on_host and not has_greedy and (flags is None or bool(flags.all()))
            if batch.device_nodes is None:
                ids = torch.where(is_drawn[:, None], drawn.token_ids.to(ids.device), ids)
            q = DraftProbs(
                drawn.node_probs,
                vocab_size=logits.shape[1],
                vocabulary=None if drawn.vocab_map is None else self._vocabulary(drawn.vocab_map, logits),
                is_drawn=None if is_all_drawn else is_drawn,
                is_taken_out=False,
                like=probs,
            )
        return PaddedDrafts(probs, ids, rows, given.num_nodes, None, q), is_valid

    def _vocabulary(self, vocab_map: torch.Tensor, logits: torch.Tensor) -> DraftVocabulary:
        """Return the vocabulary of a proposer on the device; made once for its map."""
        known, made = self._last_map
        if known is not vocab_map or made.size != logits.shape[1] or made.target_ids.device != logits.device:
            made = DraftVocabulary(vocab_map.to(logits.device), logits.shape[1])
            self._last_map = vocab_map, made
        return made


def _accept_uniforms(keys: NoiseKeys, width: int) -> torch.Tensor:
    """Return the uniform `[B, width]` for the acceptance of each node."""
    size, device = len(keys.seeds), keys.seeds.device
    first, end, step = (node_word(Stream.ACCEPT, node) for node in (0, width, 1))
    words = torch.arange(first, end, step - first, device=device).repeat(size)
    by_node = torch.stack(keys)[:, :, None].repeat(1, 1, width).flatten(1)
    return uniforms(NoiseKeys(*by_node), words, 1).view(size, width)


def _send_verdict(
    results: Results, scores: Scores, batch: VerifyBatch, given: _Given, paths: torch.Tensor | None = None
) -> AsyncVerdict:
    """Send what was decided, to the host and to the request table; `paths` see `Verdict.paths`."""
    results.send()
    if batch.table is not None:
        results.append_to(batch.table, given.lines)
    read, places = partial(_read, results, scores, batch, paths), results.offsets(given.row_starts)
    return AsyncVerdict(results.parts[2], results.parts[0], read, places, batch.table is not None, paths)


def _read(results: Results, scores: Scores, batch: VerifyBatch, paths: torch.Tensor | None = None) -> Verdict:
    """Return the verdict of results; `paths` see `Verdict.paths`."""
    (counts, invalid, emitted, *found), is_valid, logprobs, top_k = results.read()
    nodes = found[0] if found else [range(count) for count in counts]
    accepted = [[*row[:count]] for row, count in zip(nodes, counts, strict=True)]
    tokens = [row[: count + 1] for row, count in zip(emitted, counts, strict=True)]
    if max(invalid) >= 0:
        is_valid = _validity(scores, batch, accepted, invalid, is_valid)
    return Verdict(accepted, tokens, is_valid, logprobs, top_k, paths)


def _validity(
    scores: Scores,
    batch: VerifyBatch,
    accepted: Sequence[Sequence[int]],
    first_invalid: Sequence[int],
    is_valid: list[bool] | None,
) -> list[bool]:
    """Return which rows are valid, as far as tokens were drawn from them.

    Args:
        scores: the rows.
        batch: which row is whose.
        accepted: nodes of each request.
        first_invalid: see `PathVerdict.first_invalid`.
        is_valid: see `Scores.is_valid`.
    """
    found = [True] * len(scores.logits) if is_valid is None else is_valid
    for row, (path, place) in enumerate(zip(accepted, first_invalid, strict=True)):
        if place >= 0:
            found[batch.row_of(row, (-1, *path)[place])] = False
    return found


def _compares_p_and_q(batch: VerifyBatch) -> bool:
    """Return whether p and q of a batch are compared on the device."""
    return bool(batch.num_nodes) and not (batch.is_all_greedy or batch.has_trees)


def _width(batch: VerifyBatch) -> int:
    """Return the number of columns of the drafted ids; of those on the device all, so that results stay where they are."""
    if batch.device_nodes is not None and any(batch.num_nodes):
        return batch.device_nodes.width
    return max(batch.num_nodes) if batch.drawn is None else batch.drawn.token_ids.shape[1]


def _padded(rows: Sequence[Sequence[int]], width: int) -> Int64s:
    """Return rows padded to `[B, width]`."""
    padded = np.full((len(rows), width), PADDING_ID, np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
