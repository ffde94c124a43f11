"""Compiles all that steps call besides the models, or loads it from the cache, before the first request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import torch

from specdec.errors import PluginError, described, is_interrupt
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft, DraftSampling
from specdec.interfaces.sampler import Sampler, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.target import TargetInfo
from specdec.noise import row_operations
from specdec.sampling_params import SamplingParams

_WIDTH = 2


def warm_up(sampler: Sampler, info: TargetInfo, drafts: frozenset[Capability] | None) -> None:
    """Verify one dummy draft of every possible kind, not greedily; the results are discarded.

    Args:
        sampler: the sampler; it keeps no state between calls.
        info: facts about the target.
        drafts: the proposer's capabilities; None without one.

    Raises:
        PluginError: if the sampler raises, as it would in every step.
    """
    for draft in _drafts(info, (drafts or frozenset()) & sampler.capabilities, has_nodes=drafts is not None):
        try:
            sampler.verify(*_problem(draft, info))
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"sampler {sampler.name!r} cannot verify a draft of {draft.token_ids.shape[1]} nodes: {described(error)}"
            ) from error
    row_operations(info.device)  # whose choice runs each of them


def _drafts(info: TargetInfo, used: frozenset[Capability], *, has_nodes: bool) -> Iterator[Draft]:
    """Yield one draft of each kind, for a batch of one."""
    yield Draft.empty(1, info.device)
    if not has_nodes:
        return
    links = [None, [[-1] * _WIDTH]] if Capability.TREE in used else [None]
    for parents in links:
        sure = Draft.from_lists([[0] * _WIDTH], parents, device=info.device)
        yield sure
        if Capability.DRAFT_PROBS in used:
            probs = torch.full((1, _WIDTH + 1, info.vocab_size), 1 / info.vocab_size, device=info.device)
            yield Draft(sure.token_ids, sure.parents, DraftSampling.IID, probs, host_rows=sure.host_rows)


def _problem(draft: Draft, info: TargetInfo) -> tuple[Scores, Draft, VerifyBatch]:
    """Return the arguments of `verify` for a draft, with uniform target probabilities."""
    assert draft.host_rows is not None
    counts = [len(row) for row in draft.host_rows]
    starts = [0, *accumulate(count + 1 for count in counts)]
    logits = torch.zeros(starts[-1], info.vocab_size, device=info.device)
    batch = VerifyBatch(
        num_nodes=counts,
        num_tokens=[1] * len(counts),
        seeds=[0] * len(counts),
        sample_indices=[0] * len(counts),
        sampling_params=[SamplingParams(temperature=1.0)] * len(counts),
        is_all_greedy=False,
    )
    return Scores(logits, starts[:-1], logits, starts[:-1]), draft, batch
