"""Chooses the verification of a sampler: a backend's if it decides as torch does, else torch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from specdec.backends.offers import first_offer
from specdec.interfaces.backend import Declined, Verify
from specdec.interfaces.draft import DraftSampling, DrawnNodes
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.sampling_params import SamplingParams

_REQUESTS, _NODES, _VOCAB = 4, 3, 5003
_PARENTS = [[-1, -1, 0], [-1, 0, 1], [-1, 0, 0], [-1, -1, -1]]
"""Parents of the trees, one row per request."""
_COUNTS = [_NODES, 0, _NODES, _NODES]


def choose_verifier(sampler: str, device: torch.device, own: Verify) -> Verify | None:
    """Return a backend's verification of a sampler, by its name, or None; `own` is torch's."""

    def problem_of(found: Verify) -> str | None:
        for each in problems(device):
            if not each[0].is_cut and not getattr(found, "cuts", False):
                continue
            verdict = found(*each)
            if verdict is not None and (verdict != own(*each) or not _paths_agree(verdict)):
                return "it decides otherwise"
        return None

    what = f"the {sampler!r} verification"
    answer = first_offer(what, lambda backend: backend.verifier(sampler, device), problem_of)
    return None if isinstance(answer, Declined) else answer


def _paths_agree(verdict: Verdict) -> bool:
    """Return whether `paths`, if there are any, are the accepted nodes."""
    if verdict.paths is None:
        return True
    paths, accepted = verdict.paths.tolist(), verdict.accepted_nodes
    return len(paths) == len(accepted) and all(
        path == [*nodes, *([-1] * (len(path) - len(nodes)))]
        for path, nodes in zip(paths, accepted, strict=True)
    )


def problems(device: torch.device) -> Iterator[tuple[Scores, VerifyBatch]]:
    """Yield small problems: chains, also not cut, trees, chains with q, one row a point mass; the first request is greedy."""
    generator = torch.Generator().manual_seed(0)
    logits = 3.0 * torch.randn(_REQUESTS, _NODES + 1, _VOCAB, generator=generator)
    ids = logits[:, :_NODES].argmax(-1)  # some of them are accepted
    rows = torch.cat([logits[row, : count + 1] for row, count in enumerate(_COUNTS)]).to(device)
    scores = Scores(rows, rows)
    batch = VerifyBatch(
        nodes=[ids[row, :count].tolist() for row, count in enumerate(_COUNTS)],
        num_tokens=list(range(40, 40 + _REQUESTS)),
        seeds=list(range(11, 11 + _REQUESTS)),
        sample_indices=list(range(_REQUESTS)),
        sampling_params=[SamplingParams(temperature=float(row > 0)) for row in range(_REQUESTS)],
    )
    yield scores, batch
    cuts = (0, 1.0), (0, 0.5), (20, 0.7), (20, 1.0)
    params = [SamplingParams(temperature=float(row > 0), top_k=k, top_p=p) for row, (k, p) in enumerate(cuts)]
    uncut = replace(scores, logits=rows - rows.amax(-1, keepdim=True), is_cut=False)
    yield uncut, replace(batch, sampling_params=params)
    parents = [row[:count] for row, count in zip(_PARENTS, _COUNTS, strict=True)]
    yield scores, replace(batch, parents=parents)
    probs = torch.softmax(2.0 * torch.randn(_REQUESTS, _NODES + 1, _VOCAB, generator=generator), -1).to(
        device
    )
    has_probs = torch.tensor([True, True, False, True], device=device)
    drawn = DrawnNodes(ids.to(device), probs, DraftSampling.IID, has_probs)
    yield scores, replace(batch, drawn=drawn)
    names = torch.randperm(_VOCAB, generator=generator).to(device)
    yield scores, replace(batch, drawn=replace(drawn, vocab_map=names))
