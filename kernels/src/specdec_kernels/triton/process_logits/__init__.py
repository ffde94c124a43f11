"""`process_logits`: applies temperature and truncation to logits and returns p-logits."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import IDS, check_logits, check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.process_logits.config import LaunchConfig
from specdec_kernels.triton.process_logits.parameters import Cuts
from specdec_kernels.triton.process_logits.reference import process_logits_reference

__all__ = ["Cuts", "process_logits"]

_FLOAT = (torch.float32,)


def process_logits(
    logits: torch.Tensor,
    cuts: Cuts,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return p-logits, whose softmax is the distribution to draw from: temperature, min-p, top-k, top-p.

    The order is vLLM's. Everything is computed in float32. Logits with a temperature are relative to the best of their row.
    Cut ids are -inf. A temperature spreads NaN over its row. Cuts equal those of a stable sort: top-k keeps
    exactly k ids, and top-p the fewest that reach it; among equal ids the lowest are kept. Probabilities are summed as
    integers in units of 2^-40 of the best one, independent of the order, so reference and kernel differ only where the last
    bits of `exp` decide.

    Args:
        logits: `[R, V]` floating point, unit stride along V. May be `out`.
        cuts: temperature, min-p, top-k and top-p.
        out: float32 `[R, V]`, unit stride along V, to write to; None allocates it.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Returns:
        `[R, V]` float32.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    num_rows, vocab_size = logits.shape
    check_tensor("cuts.temperatures", cuts.temperatures, (num_rows,), _FLOAT, logits)
    for name, dtypes in (("min_p", _FLOAT), ("top_k", IDS), ("top_p", _FLOAT)):
        tensor = getattr(cuts, name)
        if tensor is not None:
            check_tensor(f"cuts.{name}", tensor, (num_rows,), dtypes, logits)
    if out is None:
        out = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=logits.device)
    check_tensor("out", out, (num_rows, vocab_size), _FLOAT, logits, is_row_strided=True)
    if num_rows == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        return out.copy_(process_logits_reference(logits, cuts))
    from specdec_kernels.triton.process_logits.kernel import process_logits_triton  # imports Triton

    process_logits_triton(logits, cuts, out, config)
    return out
