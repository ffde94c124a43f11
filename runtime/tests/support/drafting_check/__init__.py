"""Batches without an engine: draws that are known beforehand, grammars that are functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from specdec import SamplingParams
from specdec.interfaces import NoiseKeys, ProposeBatch

Rule = Callable[[int, Sequence[int]], Sequence[int] | None]
"""The ids that a row's grammar allows after a path; None where the row has none."""


class KnownDraws:
    """Draws the likeliest id; noise lifts one id of each row and depth, and what was asked for is kept."""

    def __init__(self) -> None:
        self.nodes: list[tuple[tuple[int, ...], int]] = []

    def sample(
        self, logits: torch.Tensor, rows: Sequence[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.nodes.append((tuple(rows), node))
        return logits.argmax(-1), logits.softmax(-1)

    def coupled(self, logits: torch.Tensor, rows: Sequence[int], depth: int) -> torch.Tensor:
        return (logits + self.coupled_noise(rows, depth, logits.shape[1])).argmax(-1)

    def coupled_noise(self, rows: Sequence[int], depth: int, num_ids: int) -> torch.Tensor:
        noise = torch.zeros(len(rows), num_ids)
        for index, row in enumerate(rows):
            noise[index, (3 * row + depth) % num_ids] = 2.0
        return noise

    def coupled_keys(self, rows: Sequence[int]) -> NoiseKeys:
        return NoiseKeys(np.array(rows), np.zeros(len(rows), np.int64), np.array(rows))


def batch_of(*params: SamplingParams, rule: Rule | None = None) -> ProposeBatch:
    """Return a batch of requests with these parameters, nothing new."""
    size = len(params)

    def allowed(row: int, path: Sequence[int]) -> torch.Tensor | None:
        assert rule is not None
        ids = rule(row, path)
        if ids is None:
            return None
        bits = np.zeros(4, np.uint32)
        for token in ids:
            bits[token >> 5] |= np.uint32(1 << (token & 31))
        return torch.from_numpy(bits.view(np.int32))

    return ProposeBatch(
        request_ids=tuple(f"r{row}" for row in range(size)),
        max_nodes=[9] * size,
        num_tokens=[5] * size,
        num_prompt_tokens=[5] * size,
        starts=[5] * size,
        counts=[0] * size,
        new_token_ids=np.empty(0, np.int32),
        last_num_drafted=[0] * size,
        last_num_accepted=[0] * size,
        sampling_params=params,
        draws=KnownDraws(),
        token_ids_of=lambda row: np.zeros(5, np.int32),
        allowed_after=None if rule is None else allowed,
    )


GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.0, seed=1)
