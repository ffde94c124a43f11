"""Verdicts beside those of the samplers, which verify with torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from specdec import SamplingParams, registry
from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    Sampler,
    Scores,
    Verdict,
    Verify,
    VerifyBatch,
)
from specdec.samplers import TorchSampler
from specdec_testing.backends.suite import SAMPLERS, BackendSuite
from specdec_testing.support.checked_draft import checked_draft, with_draft
from specdec_testing.support.verdicts import broken, described, not_applicable
from specdec_testing.support.world import World
from specdec_testing.support.world_drafts import KINDS

_BATCH = 48
_COUNTS = (4, 0, 3, 4, 1, 4)
_TREES = ((-1, -1, 0, 1), (), (-1, 0, 0), (-1, 0, 1, 1), (-1,), (-1, -1, -1, 2))
_SIZES = (97, 1003, 5003)
_PARAMS = (SamplingParams(temperature=0.0), SamplingParams(temperature=1.0))

Problem = tuple[str, Scores, VerifyBatch]


class DecisionTests(BackendSuite):
    """Every verdict is the sampler's own, token by token."""

    def test_verdicts_are_those_of_core(self) -> None:
        """A verification decides as the sampler itself does on every batch it takes: drafts of all kinds, greedy and sampled.

        To fix: draw with the same noise and compare in float64; return None for a batch that you do not take.
        """
        num_taken, reasons = 0, []
        for name in SAMPLERS:
            try:
                verify = self._made.verifier(name, self._device)
            except Exception as error:
                broken(f"verifier({name!r}) raised {described(error)}")
            if not callable(verify):
                reasons.append(verify.reason)
                continue
            sampler = registry.sampler(name)
            num_taken += sum(
                self._is_decided(verify, sampler(sampler.Config()), problem)
                for problem in self._problems(sampler)
            )
        if not num_taken:
            not_applicable(f"declined: {reasons[0]}" if reasons else "it takes none of the batches")

    def _is_decided(self, verify: Verify, sampler: Sampler, problem: Problem) -> bool:
        """Compare a verdict; returns False for a batch that the backend does not take."""
        assert isinstance(sampler, TorchSampler)
        what, scores, batch = problem
        if not scores.is_cut and not getattr(verify, "cuts", False):
            return False
        try:
            got = verify(scores, batch)
        except Exception as error:
            broken(f"{sampler.name}, {what}: it raised {described(error)}")
        if got is None:
            return False
        ours, theirs = _rows(got), _rows(sampler.verify_with_torch(scores, batch))
        for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                broken(
                    f"{sampler.name}, {what}, request {row}: nodes and tokens {one}, the sampler decides {other}"
                )
        return True

    def _problems(self, sampler: type[Sampler]) -> Iterator[Problem]:
        uses_q = Capability.DRAFT_PROBS in sampler.capabilities
        for seed, (kind, params) in enumerate((k, p) for k in KINDS.values() for p in (_PARAMS, _PARAMS[1:])):
            wanted = [params[index % len(params)] for index in range(_BATCH)]
            seeds = [1_000_003 * seed + 7_919 * index for index in range(_BATCH)]
            trial = World(seed=seed).trial(kind.make, torch.arange(_BATCH) % 21, seeds, wanted)
            logits = trial.scores.logits.to(self._device)
            if trial.batch.drawn is not None and (not uses_q or self._device.type != "cpu"):
                continue
            yield kind.name, Scores(logits, logits), trial.batch
        for seed, (size, is_tree, has_q) in enumerate(
            (size, is_tree, has_q)
            for size in _SIZES
            for is_tree in (False, True)
            for has_q in (False, uses_q)
        ):
            yield self._large(size, seed, is_tree=is_tree, has_q=has_q)
        yield self._uncut(*self._large(_SIZES[0], 1, is_tree=False, has_q=False))

    def _uncut(self, what: str, scores: Scores, batch: VerifyBatch) -> Problem:
        """Return a problem whose rows the sampler cuts."""
        rows = scores.logits - scores.logits.amax(-1, keepdim=True)
        params = [
            SamplingParams(temperature=p.temperature, top_p=0.6, top_k=9) for p in batch.sampling_params
        ]
        uncut = replace(scores, logits=rows, is_cut=False)
        return f"{what}, not cut", uncut, replace(batch, sampling_params=params)

    def _large(self, size: int, seed: int, *, is_tree: bool, has_q: bool) -> Problem:
        """Return a batch over a larger vocabulary, half of whose drafted tokens are likely."""
        generator = torch.Generator().manual_seed(seed)
        requests, width = len(_COUNTS), max(_COUNTS)
        logits = 3.0 * torch.randn(sum(_COUNTS) + requests, size, generator=generator)
        logits[::3, size // 5 :] = -torch.inf  # as top-k leaves them
        starts = [sum(_COUNTS[:row]) + row for row in range(requests)]
        ids = torch.full((requests, width), -1)
        parents = torch.full((requests, width), -1)
        for row, count in enumerate(_COUNTS):
            best = logits[starts[row] : starts[row] + count].argmax(-1)
            other = torch.randint(0, size // 5, (count,), generator=generator)
            ids[row, :count] = torch.where(torch.rand(count, generator=generator) < 0.5, best, other)
            parents[row, :count] = torch.tensor(_TREES[row] if is_tree else range(-1, count - 1))
        draft = Draft(ids.to(self._device), parents=parents.to(self._device) if is_tree else None)
        if has_q:
            probs = torch.softmax(torch.randn(requests, width + 1, size, generator=generator), -1)
            draft = Draft(
                draft.token_ids,
                parents=draft.parents,
                sampling=DraftSampling.IID,
                node_probs=probs.to(self._device),
            )
        params = [_PARAMS[row % 2] for row in range(requests)]
        batch = VerifyBatch(
            nodes=[],
            num_tokens=[40 + 3 * row for row in range(requests)],
            seeds=[11 * row - 5 for row in range(requests)],
            sample_indices=[row % 3 for row in range(requests)],
            sampling_params=params,
        )
        what = f"{'trees' if is_tree else 'chains'} {'with' if has_q else 'without'} q over {size} ids"
        rows = logits.to(self._device)
        return what, Scores(rows, rows), with_draft(batch, checked_draft(draft, size))


def _rows(verdict: Verdict) -> list[tuple[list[int], list[int]]]:
    """Return accepted nodes and tokens of each request."""
    return [
        (list(nodes), list(tokens))
        for nodes, tokens in zip(verdict.accepted_nodes, verdict.token_ids, strict=True)
    ]
