"""The target's distributions that heads and drafts are trained on, and the losses against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import fast_exp
from specdec_kernels.cpu.compiled.threads import is_available, use_threads

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
_LEAST = 1e-6
"""Lower bound on the shared mass, which limits the gradient of a guess that is far off."""


@dataclass(frozen=True)
class TargetProbs:
    """The target's distributions at selected positions of the text."""

    probs: Tensor
    """`[M, V']` float32."""
    entropies: Tensor
    """`[M]` in nats."""


@torch.no_grad()
def target_probs_of(logits: Tensor) -> TargetProbs:
    """Return the distributions of the target's logits `[M, V']`, over a reduced vocabulary if any."""
    logs = torch.log_softmax(logits.float(), -1)
    probs = logs.exp()
    return TargetProbs(probs, -(probs * logs).sum(-1))


def divergence(logits: Tensor, target_probs: TargetProbs, rows: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence from the target's distribution to a guess, in nats.

    Args:
        logits: `[N, V']` the guesses.
        target_probs: the target's distributions.
        rows: `[N]` index of the distribution for each guess.
    """
    losses: Tensor = _Distance.apply(logits, target_probs.probs, rows, False)  # type: ignore[no-untyped-call]
    return losses - target_probs.entropies[rows].mean()


def rejection(logits: Tensor, target_probs: TargetProbs, rows: Tensor) -> Tensor:
    """Mean of `-log(a)`, where `a = sum(min(p, q))` is the acceptance rate of `q` (arXiv 2602.23881).

    If a guess cannot match the target's distribution, this loss gives better acceptance than the divergence,
    which spends capacity on unlikely ids. Arguments as for `divergence`.
    """
    losses: Tensor = _Distance.apply(logits, target_probs.probs, rows, True)  # type: ignore[no-untyped-call]
    return losses


Measure = Callable[[Tensor, TargetProbs, Tensor], Tensor]
"""`divergence` or `rejection`."""


class _Distance(torch.autograd.Function):
    """The cross-entropy or `-log(a)`, and its gradient, in few passes over the logits."""

    @staticmethod
    def forward(context: Any, logits: Tensor, probs: Tensor, rows: Tensor, is_rejection: bool) -> Tensor:
        scores = logits.detach().to(torch.float32, copy=True).contiguous()  # written to
        if scores.device.type == "cpu" and is_available():
            use_threads()
            losses = torch.empty(len(scores))
            kernel = _reject if is_rejection else _compare
            kernel(scores.numpy(), probs.contiguous().numpy(), rows.numpy(), losses.numpy())
        else:
            losses, scores = (_rejections if is_rejection else _cross_entropies)(scores, probs[rows])
        context.save_for_backward(scores)
        context.dtype = logits.dtype
        return losses.mean()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (difference,) = context.saved_tensors
        return (difference * (gradients[0] / len(difference))).to(context.dtype), None, None, None


def _cross_entropies(scores: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Losses `[N]` and gradients `[N, V']` of scores; used where the compiled kernels do not run."""
    logs = torch.log_softmax(scores, -1)
    return -(wanted * logs).sum(-1), logs.exp() - wanted


def _rejections(scores: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The same for `-log(a)`."""
    guess = torch.softmax(scores, -1)
    common = torch.minimum(guess, wanted).sum(-1, keepdim=True).clamp_min(_LEAST)
    low = guess * (guess < wanted)
    return -common.log().squeeze(-1), (guess * low.sum(-1, keepdim=True) - low) / common


@njit(fastmath=True, inline="always")
def _highest(x: Floats) -> np.float32:
    """Return the highest of `[V']` scores."""
    highest: np.float32 = x[0]
    for j in range(x.shape[0]):
        highest = max(highest, x[j])
    return highest


@njit(fastmath=True, inline="always")
def _exponentiate(x: Floats, highest: np.float32) -> np.float32:
    """Replace each of `[V']` scores s by `e^(s - highest)`, and return their sum."""
    mass = np.float32(0.0)
    for j in range(x.shape[0]):
        x[j] = fast_exp(x[j] - highest)
        mass += x[j]
    return mass


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def _compare(scores: Floats, probs: Floats, rows: Integers, losses: Floats) -> None:
    """Write the cross-entropy of each guess to `losses [N]`, and softmax minus target to `scores [N, V']`."""
    size = scores.shape[1]
    for index in prange(scores.shape[0]):
        x, p = scores[index], probs[rows[index]]
        highest, known = _highest(x), np.float32(0.0)
        for j in range(size):
            known += p[j] * (x[j] - highest)
        mass = _exponentiate(x, highest)
        losses[index] = np.log(mass) - known
        for j in range(size):
            x[j] = x[j] / mass - p[j]


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def _reject(scores: Floats, probs: Floats, rows: Integers, losses: Floats) -> None:
    """Write `-log(a)` of each guess to `losses [N]`, and its gradient to `scores [N, V']`."""
    size = scores.shape[1]
    for index in prange(scores.shape[0]):
        x, p = scores[index], probs[rows[index]]
        mass = _exponentiate(x, _highest(x))
        common, low = np.float32(0.0), np.float32(0.0)
        for j in range(size):
            x[j] = x[j] / mass
            common += min(x[j], p[j])
            low += x[j] if x[j] < p[j] else np.float32(0.0)
        common = max(common, np.float32(_LEAST))
        losses[index] = -np.log(common)
        for j in range(size):
            x[j] = x[j] * (low - (np.float32(1.0) if x[j] < p[j] else np.float32(0.0))) / common
