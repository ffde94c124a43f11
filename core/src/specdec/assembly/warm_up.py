"""Compiles all that steps call besides the models, or loads it from the cache, before the first request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch

from specdec.errors import PluginError, described, is_interrupt
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import DraftSampling, DrawnNodes
from specdec.interfaces.request_table import RequestTable
from specdec.interfaces.sampler import Sampler, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.target import TargetInfo
from specdec.noise import row_operations
from specdec.sampling_params import SamplingParams

_FEW = 2
_VECTOR = 16
"""What the sizes of draft vocabularies are multiples of."""
_OF_HEADS = {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}
"""Who has one."""


def warm_up(
    sampler: Sampler, info: TargetInfo, drafts: frozenset[Capability] | None, num_nodes: int = 0
) -> None:
    """Verify one dummy draft of every possible kind, greedily too, with log probabilities; the results are discarded.

    Args:
        sampler: the sampler; it keeps no state between calls.
        info: facts about the target.
        drafts: the proposer's capabilities; None without one.
        num_nodes: the most nodes of its drafts.

    Raises:
        PluginError: if the sampler raises, as it would in every step.
    """
    dtypes = {torch.float32} if info.device.type == "cpu" else {torch.float32, info.dtype}
    widths = set() if drafts is None else {_FEW, max(_FEW, num_nodes)}
    table = None
    if drafts is not None and Capability.REQUEST_TABLE in drafts:
        table = RequestTable.on(info.device, 1, info.max_model_len)
    for kind in _batches(info, (drafts or frozenset()) & (sampler.capabilities | _OF_HEADS), widths):
        batch = kind if table is None else replace(kind, table=table, lines=[0])
        try:
            for dtype, temperature in product(dtypes, (1.0, 0.0)):  # parameters are applied in float32
                sampled = replace(batch, sampling_params=[SamplingParams(temperature=temperature)])
                sampler.verify(_uniform(sampled, info, dtype), sampled)
            if sampler.cuts(info.device):
                sampled = replace(batch, sampling_params=[SamplingParams(temperature=1.0, top_p=0.5)])
                sampler.verify(replace(_uniform(sampled, info, torch.float32), is_cut=False), sampled)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"sampler {sampler.name!r} cannot verify a draft of {max(batch.num_nodes)} nodes: {described(error)}"
            ) from error
    row_operations(info.device).prepare(info.vocab_size, num_nodes)


def _batches(info: TargetInfo, used: frozenset[Capability], widths: set[int]) -> Iterator[VerifyBatch]:
    """Yield one draft of each kind and width, for a batch of one."""
    empty = VerifyBatch([()], [1], [0], [0], [SamplingParams()], num_logprobs=[1])
    yield empty
    for width, is_tree in product(widths, (False, True)):
        if is_tree and Capability.TREE not in used:
            continue
        masses = replace(empty, nodes=[(0,) * width], parents=[(-1,) * width] if is_tree else None)
        yield masses
        if Capability.DRAFT_PROBS in used:
            ids = torch.zeros(1, width, dtype=torch.int64, device=info.device)
            probs = torch.full((1, width + 1, info.vocab_size), 1 / info.vocab_size, device=info.device)
            yield replace(masses, drawn=DrawnNodes(ids, probs, DraftSampling.IID))
            if used & _OF_HEADS:
                own = torch.arange(info.vocab_size // _VECTOR * _VECTOR or 1, device=info.device)
                named = DrawnNodes(ids, probs[..., : len(own)].contiguous(), DraftSampling.IID, vocab_map=own)
                yield replace(masses, drawn=named)


def _uniform(batch: VerifyBatch, info: TargetInfo, dtype: torch.dtype) -> Scores:
    """Return the scores of a batch with uniform target probabilities."""
    num_rows = sum(count + 1 for count in batch.num_nodes)
    raw = torch.zeros(num_rows, info.vocab_size, dtype=info.dtype, device=info.device)
    return Scores(raw.to(dtype), raw)
