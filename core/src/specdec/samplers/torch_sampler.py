"""Base class of samplers that verify with torch, where no backend does it faster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import ClassVar

import torch

from specdec import registry
from specdec.interfaces.backend import Backend, Declined, ReadsAhead, Verify
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft, DraftSampling, DrawnNodes
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Along
from specdec.registry.offers import first_offer
from specdec.samplers.paths import sound_rows
from specdec.sampling_params import SamplingParams

_REQUESTS, _NODES, _VOCAB = 4, 3, 5003
_PARENTS = [[-1, -1, 0], [-1, 0, 1], [-1, 0, 0], [-1, -1, -1]]
"""Parents of the trees, one row per request."""
_COUNTS = [_NODES, 0, _NODES, _NODES]


class TorchSampler(Sampler):
    """A sampler for which a backend may have a faster verification, by its name (`Backend.verifier`).

    Backends are asked where the class has a name of its own, since a subclass may decide otherwise, and no options,
    which they are not told.
    """

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.takes_any_rows = cls.verify is TorchSampler.verify

    def ahead(self, draft: CheckedDraft, batch: VerifyBatch, device: torch.device) -> Along | None:
        """See `Sampler.ahead`."""
        fast: object = fast_verify(type(self), device, registry.backends())
        arrays = fast.arrays(draft, batch) if isinstance(fast, ReadsAhead) else ()
        return Along(arrays) if arrays else None

    def verify(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        fast = fast_verify(type(self), scores.logits.device, registry.backends())
        if scores.is_sound is None and not getattr(fast, "takes_any_rows", False):
            scores = sound_rows(scores)
        verdict = None if fast is None else fast(scores, draft, batch)
        verdict = self.verify_with_torch(scores, draft, batch) if verdict is None else verdict
        if verdict.is_sound is None and scores.is_sound is not None:
            verdict = replace(verdict, is_sound=scores.is_sound.tolist())
        return verdict

    @abstractmethod
    def verify_with_torch(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Do the same with torch alone; backends are compared with it."""


@cache
def fast_verify(
    sampler: type[TorchSampler], device: torch.device, backends: tuple[Backend, ...]
) -> Verify | None:
    """Return a backend's verification that decides as a sampler does with torch, or None; chosen once.

    Args:
        sampler: the class.
        device: of the logits.
        backends: those that are asked.
    """
    if "name" not in vars(sampler) or sampler.Config.model_fields:
        return None
    own = sampler(sampler.Config()).verify_with_torch

    def problem_of(found: Verify) -> str | None:
        agrees = all((got := found(*each)) is None or got == own(*each) for each in problems(device))
        return None if agrees else "it decides otherwise"

    what = f"the {sampler.name!r} verification"
    answer = first_offer(what, lambda backend: backend.verifier(sampler.name, device), problem_of)
    return None if isinstance(answer, Declined) else answer


def problems(device: torch.device) -> Iterator[tuple[Scores, CheckedDraft, VerifyBatch]]:
    """Yield small problems: chains, trees, and chains with q of which one row is a point mass; the first request is greedy."""
    generator = torch.Generator().manual_seed(0)
    logits = 3.0 * torch.randn(_REQUESTS, _NODES + 1, _VOCAB, generator=generator)
    ids = logits[:, :_NODES].argmax(-1)  # some of them are accepted
    rows = torch.cat([logits[row, : count + 1] for row, count in enumerate(_COUNTS)]).to(device)
    starts = [sum(count + 1 for count in _COUNTS[:row]) for row in range(_REQUESTS)]
    scores = Scores(rows, starts, rows, starts)
    batch = VerifyBatch(
        num_nodes=_COUNTS,
        num_tokens=list(range(40, 40 + _REQUESTS)),
        seeds=list(range(11, 11 + _REQUESTS)),
        sample_indices=list(range(_REQUESTS)),
        sampling_params=[SamplingParams(temperature=float(row > 0)) for row in range(_REQUESTS)],
        is_all_greedy=False,
    )
    drafted = tuple(tuple(ids[row, :count].tolist()) for row, count in enumerate(_COUNTS))
    parents = tuple(tuple(row[:count]) for row, count in zip(_PARENTS, _COUNTS, strict=True))
    yield scores, CheckedDraft(drafted), batch
    yield scores, CheckedDraft(drafted, parents), batch
    probs = torch.softmax(2.0 * torch.randn(_REQUESTS, _NODES + 1, _VOCAB, generator=generator), -1).to(
        device
    )
    has_probs = torch.tensor([True, True, False, True], device=device)
    drawn = DrawnNodes(ids.to(device), probs, DraftSampling.IID, has_probs)
    yield scores, CheckedDraft(drafted, drawn=drawn), batch
