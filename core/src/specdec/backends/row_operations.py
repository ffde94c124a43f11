"""Chooses the operations on rows of logits: a backend's if they agree with torch's, else torch's."""

from __future__ import annotations

import numpy as np
import torch

from specdec.backends.offers import first_offer
from specdec.interfaces.backend import Declined
from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.row_operations import Occurrences, RowOperations
from specdec.sampling_params import SamplingParams

_ROWS, _IDS = 4, 203
"""Size of the problem that a backend is tried with; the number of ids is no multiple of any vector's."""


def choose_row_operations(device: torch.device, own: RowOperations) -> RowOperations:
    """Return the operations for tensors on a device; `own` are torch's."""
    answer = first_offer(
        "the operations on rows of logits",
        lambda backend: backend.row_operations(device),
        lambda found: None if _agrees(found, own, device) else "they disagree with torch's",
    )
    return own if isinstance(answer, Declined) else answer


def _agrees(found: RowOperations, own: RowOperations, device: torch.device) -> bool:
    """Return whether a backend's operations give what torch's give on a small problem."""
    generator = torch.Generator().manual_seed(0)
    logits = (5.0 * torch.randn(_ROWS, _IDS, generator=generator)).to(device)
    seeds, positions, samples = (np.arange(start, start + _ROWS) for start in (11, 40, 0))
    keys = seeds, positions, samples
    words = torch.arange(_ROWS, device=device)
    temperatures = 0.5 + words[:, None].double()
    counts = np.full(_ROWS, _IDS)
    broken = logits.clone()
    broken[0], broken[1, 3] = -torch.inf, torch.nan
    masks = [operations.valid_rows(broken) for operations in (found, own)]
    return (
        found.best_ids(logits) == own.best_ids(logits)
        and masks[0] is not None
        and masks[1] is not None
        and torch.equal(*masks)  # type: ignore[arg-type]  # not None
        and torch.allclose(found.scaled(logits, 0.7), own.scaled(logits, 0.7), atol=1e-5)
        and torch.allclose(
            found.scaled_rows(logits, temperatures), own.scaled_rows(logits, temperatures), atol=1e-5
        )
        and torch.equal(found.keep_top_p(logits, 0.7, counts), own.keep_top_p(logits, 0.7, counts))
        and _agree_at_once(found, own, logits)
        and torch.equal(
            found.multinomial(logits.softmax(-1), *keys, words),
            own.multinomial(logits.softmax(-1), *keys, words),
        )
        and torch.allclose(found.gumbel(*keys, 8, _IDS), own.gumbel(*keys, 8, _IDS), atol=1e-5)
        and torch.allclose(found.uniforms(*keys, keys[2]), own.uniforms(*keys, keys[2]), atol=1e-12)
        and _penalises(found, logits)
    )


def _penalises(found: RowOperations, logits: torch.Tensor) -> bool:
    """Return whether penalties are right along a path of two tokens, the first of which is in the text."""
    if not found.penalises:
        return True
    expected = logits.clone()
    block = RowBlock(SamplingParams(), (5, 7))
    text = Occurrences(np.array([3, 5]), np.array([0, 1], np.float32), (1.5, 0.25, 0.5), block)
    got = found.penalise(logits, [(1, np.arange(3), text)])
    for row, counts in ((1, (0, 1, 0)), (2, (0, 2, 0)), (3, (0, 2, 1))):
        for token, count in zip((3, 5, 7), counts, strict=True):
            value = expected[row, token]
            lowered = torch.where(value > 0, value / 1.5, value * 1.5) if count or token == 3 else value
            expected[row, token] = lowered - 0.5 * count - 0.25 * (count > 0)
    return torch.allclose(got, expected, atol=1e-5)


def _agree_at_once(found: RowOperations, own: RowOperations, logits: torch.Tensor) -> bool:
    """Return whether what is kept by top-p after temperature is the same."""
    settings = np.array([[0.7] * _ROWS, [0.0] * _ROWS, [_IDS] * _ROWS, [0.7] * _ROWS])
    at_once = found.truncated(logits, settings)
    kept = own.keep_top_p(own.scaled(logits, 0.7), 0.7, np.full(_ROWS, _IDS))
    return at_once is None or torch.allclose(at_once, kept, atol=1e-5)
