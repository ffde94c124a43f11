"""`gumbel_sample`: draws one token per row without materializing the softmax or the noise."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_logits, check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.gumbel_sample.reference import gumbel_sample_reference
from specdec_kernels.triton.noise.config import LaunchConfig
from specdec_kernels.triton.noise.keys import NoiseKeys, check_keys

__all__ = ["gumbel_sample"]


def gumbel_sample(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    words: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Draw `argmax(logits / T + g)` per row, with Gumbel noise g of (seed, position, sample, word, id).

    This is a draw from `softmax(logits / T)`. A temperature of 0 takes the best id. Ties go to the lowest id, a NaN never
    wins, and a row of only NaN and -inf gives 0. Reference and kernel agree if the two best scores differ by more than the
    last bits of `log` in the kernel's precision: float64 for float64 logits, float32 for all others.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        temperatures: `[R]` float32, not negative.
        keys: of `[R]` rows; `positions` are the positions of the tokens to draw.
        words: `[R]` int64 from `specdec.noise.node_word`; None is the stream of the target, node 0.
        out: `[R]` int64 to write to; None allocates it.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Returns:
        `[R]` int64 token ids.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    num_rows = logits.shape[0]
    check_tensor("temperatures", temperatures, (num_rows,), (torch.float32,), logits)
    check_keys(keys, num_rows, logits)
    if words is not None:
        check_tensor("words", words, (num_rows,), (torch.int64,), logits)
    if out is None:
        out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    check_tensor("out", out, (num_rows,), (torch.int64,), logits)
    if num_rows == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        return out.copy_(gumbel_sample_reference(logits, temperatures, keys, words))
    from specdec_kernels.triton.gumbel_sample.kernel import gumbel_sample_triton  # imports Triton

    gumbel_sample_triton(logits, temperatures, keys, words, out, config)
    return out
