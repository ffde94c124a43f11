"""`strict` on rows that are not cut by top-k and top-p draws what it draws from rows that are: same seed, same tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from specdec.interfaces import SamplerConfig, Scores, VerifyBatch
from specdec.logits import RowBlock, p_logits, p_logits_of
from specdec.samplers.strict import StrictSampler
from specdec.sampling_params import SamplingParams

SAMPLER = StrictSampler(SamplerConfig())
CPU = torch.device("cpu")
INF = torch.inf
ROWS = 6


def rows(kind: str, size: int, rng: np.random.Generator) -> torch.Tensor:
    """Logits `[ROWS, size]`, with many ties, or half of them forbidden, or all equal."""
    logits = torch.from_numpy(rng.choice([0.5, 2.0, 5.0]) * rng.standard_normal((ROWS, size))).float()
    if kind == "ties":
        return logits.round()
    if kind == "forbidden":
        logits[torch.from_numpy(rng.random(logits.shape) < 0.5)] = -INF
        logits[:, rng.integers(size)] = 1.0
    return logits if kind != "equal" else torch.zeros_like(logits)


def params(size: int, rng: np.random.Generator) -> SamplingParams:
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.3, 1.0, 2.0], p=[0.1, 0.3, 0.3, 0.3])),
        top_k=int(rng.choice([0, 1, 2, 7, 50, size])),
        top_p=float(rng.choice([1.0, 0.999999, 0.95, 0.5, 0.1, 1e-9])),
        min_p=float(rng.choice([0.0, 0.05, 0.5, 1.0], p=[0.6, 0.2, 0.1, 0.1])),
    )


def both(logits: torch.Tensor, batch: VerifyBatch) -> tuple[Scores, Scores]:
    """Scores that are cut, and that are not."""
    blocks = [RowBlock(each, nodes) for each, nodes in zip(batch.sampling_params, batch.nodes, strict=True)]
    change, is_cut = p_logits_of(blocks, logits.shape[1], CPU, is_cut=False)
    uncut = Scores(logits if change is None else change(logits), logits, is_cut=is_cut)
    return Scores(p_logits(logits, blocks), logits), uncut


@pytest.mark.parametrize("kind", ["random", "ties", "forbidden", "equal"])
@pytest.mark.parametrize("size", [1, 2, 33, 203, 1000, 4097])
def test_the_same_tokens(kind, size) -> None:
    rng = np.random.default_rng([size, len(kind)])
    num_uncut = 0
    for _ in range(12):
        batch = VerifyBatch(
            nodes=[[]] * ROWS,
            num_tokens=rng.integers(0, 1000, ROWS).tolist(),
            seeds=rng.integers(-(2**62), 2**62, ROWS).tolist(),
            sample_indices=[0] * ROWS,
            sampling_params=[params(size, rng) for _ in range(ROWS)],
        )
        cut, uncut = both(rows(kind, size, rng), batch)
        num_uncut += not uncut.is_cut
        wanted = SAMPLER.verify_with_torch(cut, batch)
        assert SAMPLER.verify_with_torch(uncut, batch) == wanted
        assert SAMPLER.verify(uncut, batch) == wanted
        assert SAMPLER.verify(cut, batch) == wanted
    assert num_uncut > 6


def test_along_a_draft() -> None:
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(4 * rng.standard_normal((6, 500))).float()
    sampled = [
        SamplingParams(temperature=0.8, top_p=0.9, top_k=20),
        SamplingParams(temperature=0.9, top_p=0.5),
    ]
    batch = VerifyBatch([[7, 8], [9, 10]], [5, 6], [1, 2], [0, 0], sampled)
    for _ in range(3):  # each time the draft has the tokens that were drawn after it
        cut, uncut = both(logits, batch)
        verdict = SAMPLER.verify(uncut, batch)
        assert verdict == SAMPLER.verify(cut, batch)
        drawn = [[*tokens, 0][:2] for tokens in verdict.token_ids]
        batch = replace(batch, nodes=drawn)
    assert verdict.num_accepted == [2, 2]


def test_rows_that_are_no_numbers() -> None:
    logits = torch.zeros(3, 40)
    logits[0, 3], logits[1] = torch.nan, -INF
    batch = VerifyBatch(
        [[]] * 3, [5] * 3, [1] * 3, [0] * 3, [SamplingParams(temperature=1.0, top_p=0.5, top_k=9)] * 3
    )
    verdict = SAMPLER.verify(both(logits, batch)[1], batch)
    assert verdict.is_valid == [False, False, True]


def test_only_what_is_asked_for_is_left() -> None:
    logits = torch.arange(8.0)[None]
    for given, is_cut, left in (
        ({"top_k": 2}, True, 2),
        ({"top_k": 2}, False, 8),
        ({"min_p": 0.9}, False, 1),
    ):
        change, found = p_logits_of(
            [RowBlock(SamplingParams(temperature=1.0, **given))], 8, CPU, is_cut=is_cut
        )
        assert change is not None
        assert int((change(logits) > -INF).sum()) == left
        assert found == (left != 8)
