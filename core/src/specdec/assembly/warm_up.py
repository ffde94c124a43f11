"""Compiles all that steps call besides the models, or loads it from the cache, before the first request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, product

import torch

from specdec.errors import PluginError, described, is_interrupt
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft, DraftSampling, DrawnNodes
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
    for draft in _drafts(info, (drafts or frozenset()) & (sampler.capabilities | _OF_HEADS), widths):
        try:
            for dtype, heat in product(dtypes, (1.0, 0.0)):  # parameters are applied in float32
                sampler.verify(*_problem(draft, info, dtype, heat))
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"sampler {sampler.name!r} cannot verify a draft of {max(draft.num_nodes)} nodes: {described(error)}"
            ) from error
    row_operations(info.device).prepare(info.vocab_size, num_nodes)


def _drafts(info: TargetInfo, used: frozenset[Capability], widths: set[int]) -> Iterator[CheckedDraft]:
    """Yield one draft of each kind and width, for a batch of one."""
    yield CheckedDraft.empty(1)
    for width, is_tree in product(widths, (False, True)):
        if is_tree and Capability.TREE not in used:
            continue
        parents, row = ((-1,) * width,) if is_tree else None, (0,) * width
        yield CheckedDraft((row,), parents)
        if Capability.DRAFT_PROBS in used:
            ids = torch.zeros(1, width, dtype=torch.int64, device=info.device)
            probs = torch.full((1, width + 1, info.vocab_size), 1 / info.vocab_size, device=info.device)
            drawn = DrawnNodes(ids, probs, DraftSampling.IID)
            yield CheckedDraft((row,), parents, drawn)
            if used & _OF_HEADS:
                own = torch.arange(info.vocab_size // _VECTOR * _VECTOR or 1, device=info.device)
                named = DrawnNodes(ids, probs[..., : len(own)].contiguous(), DraftSampling.IID, vocab_map=own)
                yield CheckedDraft((row,), parents, named)


def _problem(
    draft: CheckedDraft, info: TargetInfo, dtype: torch.dtype, heat: float
) -> tuple[Scores, CheckedDraft, VerifyBatch]:
    """Return the arguments of `verify` for a draft, with uniform target probabilities."""
    counts = draft.num_nodes
    starts = [0, *accumulate(count + 1 for count in counts)]
    raw = torch.zeros(starts[-1], info.vocab_size, dtype=info.dtype, device=info.device)
    batch = VerifyBatch(
        num_nodes=counts,
        num_tokens=[1] * len(counts),
        seeds=[0] * len(counts),
        sample_indices=[0] * len(counts),
        sampling_params=[SamplingParams(temperature=heat)] * len(counts),
        is_all_greedy=not heat,
        num_logprobs=[1] * len(counts),
    )
    return Scores(raw.to(dtype), starts[:-1], raw, starts[:-1]), draft, batch
