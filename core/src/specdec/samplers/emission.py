"""Random draws of verifiers: uniforms for acceptance, and the token after the accepted path."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.sampler import VerifyBatch
from specdec.noise import Stream, node_word, row_operations

Int64s = npt.NDArray[np.int64]
_CPU = torch.device("cpu")


def accept_uniforms(batch: VerifyBatch, width: int, device: torch.device) -> torch.Tensor:
    """Return one fresh uniform per node, `[B, width]` float64.

    They are made on the CPU, on whatever device the rest runs: their keys are known there, and there are few
    of them.
    """
    return row_operations(_CPU).uniforms(*_keys(batch), _accept_words(width)).to(device)


def draw_tokens(weights: torch.Tensor, stop: torch.Tensor, batch: VerifyBatch) -> tuple[list[int], list[int]]:
    """Draw the token after each accepted path, with noise of the node where it stops; synchronises once.

    Args:
        weights: `[B, V]`, not negative; not written to.
        stop: `[B]` last accepted nodes, -1 for none.
        batch: the source of the noise keys.

    Returns:
        the last accepted nodes and the tokens, `[B]` each. A token is -1 where the weights are not numbers.
    """
    words = node_words(Stream.RESIDUAL, stop + 1)
    winners = row_operations(weights.device).multinomial(weights, *_keys(batch), words)
    drawn = torch.where(weights.sum(-1).isfinite(), winners, -1)
    stops, tokens = torch.stack((stop, drawn)).tolist()
    return stops, tokens


def node_words(stream: Stream, nodes: torch.Tensor) -> torch.Tensor:
    """Return `node_word` of a stream and of each of some nodes, of any shape, on their device."""
    first = node_word(stream)
    return first + nodes * (node_word(stream, 1) - first)


def _keys(batch: VerifyBatch) -> tuple[Int64s, Int64s, Int64s]:
    return (
        np.array(batch.seeds, np.int64),
        np.array(batch.num_tokens, np.int64),
        np.array(batch.sample_indices, np.int64),
    )


@lru_cache(maxsize=64)
def _accept_words(width: int) -> Int64s:
    return node_words(Stream.ACCEPT, torch.arange(width)).numpy()
