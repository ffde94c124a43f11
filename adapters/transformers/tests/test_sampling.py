"""Which processors become sampling parameters."""

from __future__ import annotations

import pytest
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdec_transformers.sampling import Sampling, sampling_of

HEAT, K, P, MIN, PENALTY = (
    TemperatureLogitsWarper(0.5),
    TopKLogitsWarper(5),
    TopPLogitsWarper(0.9),
    MinPLogitsWarper(0.1),
    RepetitionPenaltyLogitsProcessor(1.2),
)


@pytest.mark.parametrize(
    ("processors", "expected"),
    [
        ([], Sampling(())),
        ([HEAT], Sampling((), temperature=0.5)),
        ([PENALTY, HEAT, K, P], Sampling((PENALTY, K), temperature=0.5, top_p=0.9)),
        ([K, MIN], Sampling((K,), min_p=0.1)),
        ([HEAT, P, MIN], Sampling((HEAT, P, MIN))),
        ([HEAT, PENALTY], Sampling((HEAT, PENALTY))),
        ([K, HEAT, P], Sampling((K, HEAT, P))),
        ([HEAT, HEAT], Sampling((HEAT, HEAT))),
        ([TopPLogitsWarper(0.9, min_tokens_to_keep=2)], None),
        ([MinPLogitsWarper(0.1, filter_value=-5.0)], None),
        ([TopPLogitsWarper(0.0)], None),
    ],
)
def test_parameters(processors, expected) -> None:
    assert sampling_of(processors, do_sample=True) == (expected or Sampling(tuple(processors)))


def test_greedy_runs_everything() -> None:
    assert sampling_of([PENALTY, HEAT], do_sample=False) == Sampling((PENALTY, HEAT), temperature=0.0)
