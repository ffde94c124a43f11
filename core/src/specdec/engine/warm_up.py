"""Compiles all that steps call besides the models, or loads it from the cache, before the first request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import torch

from specdec.compiled.rows import best_ids
from specdec.engine.soundness import sound_rows
from specdec.errors import PluginError, described, is_interrupt
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft, DraftSampling
from specdec.interfaces.sampler import Sampler, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.target import TargetInfo
from specdec.logits import cut_logits
from specdec.noise.host import gumbel_rows, race
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
    if info.device.type == "cpu":
        _compile_for_host(draws=drafts is not None)


def _compile_for_host(*, draws: bool) -> None:
    """Call what steps call around the sampler.

    Args:
        draws: also what proposers call that draw their tokens, with the target's noise or their own.
    """
    logits, one = torch.zeros(1, 4), np.zeros(1, np.int64)
    sound_rows(Scores(logits, [0], logits, [0]))
    cut_logits(logits, [SamplingParams(temperature=0.5)], [1])
    best_ids(logits.numpy(), one)  # for greedy requests
    if draws:
        race(np.ones(4, np.float32), 0, 0, 0, 0)
        gumbel_rows(one, one, one, 0, 4)


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
