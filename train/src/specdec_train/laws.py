"""The target's laws that heads and drafts learn, and how far a guess is from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from specdec.compiled.math import fast_exp
from specdec.runner.host.attention import is_available, use_threads

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Laws:
    """What the target says at each place of some windows."""

    probs: Tensor
    """`[B, T, V']` float32."""
    entropies: Tensor
    """`[B, T]` in nats."""


@torch.no_grad()
def laws_of(wanted: Tensor, target_ids: Tensor | None = None) -> Laws:
    """Return the laws of the target's logits.

    Args:
        wanted: `[B, T, V]`.
        target_ids: `[V']` ids that can be guessed; the law is taken among these. None for all.
    """
    logs = torch.log_softmax((wanted if target_ids is None else wanted[..., target_ids]).float(), -1)
    probs = logs.exp()
    return Laws(probs, -(probs * logs).sum(-1))


def divergence(logits: Tensor, laws: Laws, start: int = 0) -> Tensor:
    """Mean Kullback-Leibler divergence from the target's law to a guess, in nats.

    Args:
        logits: `[B, R, V']` the guess.
        laws: what it should be.
        start: the guess's first row stands at this place of them.
    """
    loss: Tensor = _Divergence.apply(logits, laws.probs, laws.entropies, start)  # type: ignore[no-untyped-call]
    return loss


class _Divergence(torch.autograd.Function):
    """The loss and its gradient, `softmax(logits) - law`, from one pass over the logits."""

    @staticmethod
    def forward(context: Any, logits: Tensor, probs: Tensor, entropies: Tensor, start: int) -> Tensor:
        end = start + logits.shape[1]
        scores = logits.detach().to(torch.float32, copy=True).contiguous()  # written to
        if scores.device.type == "cpu" and is_available():
            use_threads()
            losses = torch.empty(scores.shape[:2])
            _compare(scores.numpy(), probs.contiguous().numpy(), start, losses.numpy())
        else:
            wanted = probs[:, start:end]
            logs = torch.log_softmax(scores, -1)
            losses = -(wanted * logs).sum(-1)
            scores = logs.exp() - wanted
        context.save_for_backward(scores)
        context.dtype = logits.dtype
        return losses.mean() - entropies[:, start:end].mean()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (difference,) = context.saved_tensors
        scale = gradients[0] / (difference.shape[0] * difference.shape[1])
        return (difference * scale).to(context.dtype), None, None, None


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def _compare(scores: Floats, probs: Floats, start: int, losses: Floats) -> None:
    """Write the cross-entropy of each row to `losses [B, R]`, and to `scores [B, R, V']` its softmax less its law."""
    num_rows, size = scores.shape[1], scores.shape[2]
    for index in prange(scores.shape[0] * num_rows):
        row, place = index // num_rows, index % num_rows
        x, p = scores[row, place], probs[row, start + place]
        highest = x[0]
        for j in range(size):
            highest = max(highest, x[j])
        mass, known = np.float32(0.0), np.float32(0.0)
        for j in range(size):
            known += p[j] * (x[j] - highest)
            x[j] = fast_exp(x[j] - highest)
            mass += x[j]
        losses[row, place] = np.log(mass) - known
        for j in range(size):
            x[j] = x[j] / mass - p[j]
