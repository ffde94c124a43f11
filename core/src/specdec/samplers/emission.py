"""Random draws of verifiers: uniforms for acceptance, and the token after the accepted path."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.sampler import VerifyBatch
from specdec.noise import Stream, exponentials, first_uniforms, node_word, race_rows

Int64s = npt.NDArray[np.int64]


def accept_uniforms(batch: VerifyBatch, width: int, device: torch.device) -> torch.Tensor:
    """Return one fresh uniform per node, `[B, width]` float64.

    They are made on the host, on whatever device the rest runs: their keys are known there, and there are few
    of them.
    """
    return torch.from_numpy(first_uniforms(*_keys(batch), _accept_words(width))).to(device)


def draw_tokens(weights: torch.Tensor, stop: torch.Tensor, batch: VerifyBatch) -> tuple[list[int], list[int]]:
    """Draw the token after each accepted path, with noise of the node where it stops; synchronises once.

    Args:
        weights: `[B, V]`, not negative; not written to.
        stop: `[B]` last accepted nodes, -1 for none.
        batch: the source of the noise keys.

    Returns:
        the last accepted nodes and the tokens, `[B]` each. A token is -1 where the weights are not numbers.
    """
    if weights.device.type != "cpu":
        return draw_on_device(weights, stop, batch)
    stops: list[int] = stop.tolist()
    words = np.array([node_word(Stream.RESIDUAL, node + 1) for node in stops], np.int64)
    tokens: list[int] = race_rows(weights.numpy(), *_keys(batch), words).tolist()
    return stops, tokens


def draw_on_device(
    weights: torch.Tensor, stop: torch.Tensor, batch: VerifyBatch
) -> tuple[list[int], list[int]]:
    """Draw as `draw_tokens` does, without the compiled race: computes every exponential."""
    seeds, positions, samples = (torch.from_numpy(key).to(weights.device) for key in _keys(batch))
    first = node_word(Stream.RESIDUAL)
    words = first + (stop + 1) * (node_word(Stream.RESIDUAL, 1) - first)
    noise = exponentials(seeds, positions, samples, words, weights.shape[1])
    winners = (noise / weights.double()).argmin(-1)
    drawn = torch.where(weights.sum(-1).isfinite(), winners, -1)
    stops, tokens = torch.stack((stop, drawn)).tolist()
    return stops, tokens


def _keys(batch: VerifyBatch) -> tuple[Int64s, Int64s, Int64s]:
    return (
        np.array(batch.seeds, np.int64),
        np.array(batch.num_tokens, np.int64),
        np.array(batch.sample_indices, np.int64),
    )


@lru_cache(maxsize=64)
def _accept_words(width: int) -> Int64s:
    return np.array([node_word(Stream.ACCEPT, node) for node in range(width)], np.int64)
