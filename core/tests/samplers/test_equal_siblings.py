"""Of equal siblings any may carry the path on: at temperature 0, and for `strict` at any, it is the longest one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from specdec.interfaces import (
    Draft,
    DraftSampling,
    DrawnNodes,
    Sampler,
    SamplerConfig,
    Scores,
    VerifyBatch,
)
from specdec.samplers.block import BlockSampler
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec.samplers.strict import StrictSampler
from specdec.sampling_params import SamplingParams
from specdec_runtime.samplers.typical import TypicalConfig, TypicalSampler

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "strict": lambda: StrictSampler(SamplerConfig()),
    "probabilistic": lambda: ProbabilisticSampler(SamplerConfig()),
    "block": lambda: BlockSampler(SamplerConfig()),
    "typical": lambda: TypicalSampler(TypicalConfig()),
}
BEST = {(): 2, (2,): 3, (2, 3): 1, (2, 3, 1): 0}
"""The best id after a text; 0 after all others."""
TREES = {
    "only the second goes on": ([2, 2, 3, 1], [-1, -1, 1, 2], [1, 2, 3]),
    "the second goes further": ([2, 2, 3, 3, 1], [-1, -1, 0, 1, 3], [1, 3, 4]),
    "the first of two that go equally far": ([2, 2, 3, 3], [-1, -1, 0, 1], [0, 2]),
    "equal ones on every level": ([2, 2, 3, 3, 1], [-1, -1, 0, 0, 3], [0, 3, 4]),
}
"""Drafted ids, parents, and the path."""


def problem(rows: list[list[int]], parents: list[list[int]], temperatures: list[float], q: bool) -> tuple:
    """A batch in which the best id follows from the text, nearly certain where tokens are drawn."""
    logits = []
    for row, links in zip(rows, parents, strict=True):
        texts: list[tuple[int, ...]] = [()]
        for token, parent in zip(row, links, strict=True):
            texts.append((*texts[parent + 1], token))
        logits += [torch.zeros(4).scatter_(0, torch.tensor(BEST.get(text, 0)), 40.0) for text in texts]
    ids = Draft.from_lists(rows).token_ids
    probs = torch.full((len(rows), ids.shape[1] + 1, 4), 0.25)
    drawn = DrawnNodes(ids, probs, DraftSampling.IID) if q else None
    params = [SamplingParams(temperature=temperature) for temperature in temperatures]
    batch = VerifyBatch(
        nodes=rows, num_tokens=[9] * len(rows), seeds=list(range(len(rows))),
        sample_indices=[0] * len(rows), sampling_params=params, parents=parents, drawn=drawn,
    )  # fmt: skip
    wide = torch.stack(logits)
    return Scores(wide, wide), batch


@pytest.mark.parametrize("q", [False, True], ids=["no q", "q"])
@pytest.mark.parametrize("beside", [0.0, 1.0], ids=["all greedy", "beside a sampled row"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_greedy_path_is_the_longest(name: str, tree: str, beside: float, q: bool) -> None:
    row, parents, path = TREES[tree]
    scores, batch = problem([row, row[:1]], [parents, parents[:1]], [0.0, beside], q)
    verdict = SAMPLERS[name]().verify(scores, batch)
    assert list(verdict.accepted_nodes[0]) == path
    assert list(verdict.token_ids[0]) == [2, 3, 1, 0][: len(path) + 1]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", ["strict", "typical"])
def test_a_sampled_path_is_the_longest_where_nothing_is_tried_in_turn(name: str, tree: str) -> None:
    row, parents, path = TREES[tree]
    verdict = SAMPLERS[name]().verify(*problem([row], [parents], [1.0], False))
    assert list(verdict.accepted_nodes[0]) == path
    assert list(verdict.token_ids[0]) == [2, 3, 1, 0][: len(path) + 1]
