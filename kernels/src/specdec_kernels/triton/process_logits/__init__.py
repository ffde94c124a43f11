"""`process_logits`: applies all sampling parameters to the target's logits and returns p-logits."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import IDS, check_logits, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.process_logits.config import LaunchConfig, heuristic
from specdec_kernels.triton.process_logits.parameters import Bias, Cuts, Penalties
from specdec_kernels.triton.process_logits.reference import process_logits_reference

__all__ = ["Bias", "Cuts", "Penalties", "process_logits"]

_FLOAT = (torch.float32,)


def process_logits(
    logits: torch.Tensor,
    *,
    bias: Bias | None = None,
    penalties: Penalties | None = None,
    bitmask: torch.Tensor | None = None,
    cuts: Cuts | None = None,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return p-logits, whose softmax is the target's distribution: bias, penalties, bitmask, temperature, min-p, top-k, top-p.

    The order is vLLM's. Everything is computed in float32. Logits with a temperature are relative to the best of their row.
    Forbidden and cut ids are -inf. A temperature spreads NaN over its row. Cuts equal those of a stable sort: top-k keeps
    exactly k ids, and top-p the fewest that reach it; among equal ids the lowest are kept. Probabilities are summed as
    integers in units of 2^-40 of the best one, independent of the order, so reference and kernel differ only where the last
    bits of `exp` decide.

    Args:
        logits: `[R, V]` floating point, unit stride along V. May be `out`.
        bias: values added to the logits of some ids.
        penalties: on tokens that occurred.
        bitmask: `[R, ceil(V / 32)]` int32, unit stride: bit i % 32 of word i // 32 allows id i.
        cuts: temperature, min-p, top-k and top-p; None applies none of them.
        out: float32 `[R, V]`, unit stride along V, to write to; None allocates it.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Returns:
        `[R, V]` float32.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    num_rows, vocab_size = logits.shape
    _check(logits, bias, penalties, cuts)
    if bitmask is not None:
        shape = (num_rows, -(-vocab_size // 32))
        check_tensor("bitmask", bitmask, shape, (torch.int32,), logits, is_row_strided=True)
    if out is None:
        out = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=logits.device)
    check_tensor("out", out, (num_rows, vocab_size), _FLOAT, logits, is_row_strided=True)
    if num_rows == 0:
        return out
    given = (logits, bias, penalties, bitmask, cuts)
    if backend_for(logits) is Backend.REFERENCE:
        return out.copy_(process_logits_reference(*given))
    from specdec_kernels.triton.process_logits.kernel import process_logits_triton  # imports Triton

    chosen = config or heuristic(vocab_size)
    process_logits_triton(*given, out, chosen)
    return out


def _check(logits: torch.Tensor, bias: Bias | None, penalties: Penalties | None, cuts: Cuts | None) -> None:
    num_rows, vocab_size = logits.shape
    if bias is not None:
        if bias.ids.dim() != 2:
            raise ValueError(f"bias.ids must be int32 or int64 [{num_rows}, M], not {shown(bias.ids)}")
        shape = (num_rows, bias.ids.shape[1])
        check_tensor("bias.ids", bias.ids, shape, IDS, logits)
        check_tensor("bias.values", bias.values, shape, _FLOAT, logits)
    if penalties is not None:
        for name, dtype in (("output_counts", torch.int32), ("is_in_prompt", torch.bool)):
            tensor = getattr(penalties, name)
            check_tensor(
                f"penalties.{name}", tensor, (num_rows, vocab_size), (dtype,), logits, is_row_strided=True
            )
        for name in ("repetition", "presence", "frequency"):
            check_tensor(f"penalties.{name}", getattr(penalties, name), (num_rows,), _FLOAT, logits)
    if cuts is not None:
        check_tensor("cuts.temperatures", cuts.temperatures, (num_rows,), _FLOAT, logits)
        for name, dtypes in (("min_p", _FLOAT), ("top_k", IDS), ("top_p", _FLOAT)):
            tensor = getattr(cuts, name)
            if tensor is not None:
                check_tensor(f"cuts.{name}", tensor, (num_rows,), dtypes, logits)
