"""`uniforms` and `gumbel_noise`: stateless random numbers, the same on every device."""

from __future__ import annotations

import torch

from specdec import noise
from specdec_kernels.triton.arguments import check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.noise.config import LaunchConfig
from specdec_kernels.triton.noise.keys import NoiseKeys, check_keys, counter_words

__all__ = ["NoiseKeys", "gumbel_noise", "uniforms"]


def uniforms(
    keys: NoiseKeys,
    words: torch.Tensor,
    num_ids: int,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return uniforms strictly between 0 and 1, the same bits on every device: `(i + 0.5) / 2^32` of 32-bit noise i.

    Args:
        keys: of `[R]` rows.
        words: `[R]` int64 from `specdec.noise.node_word`, used modulo 2^32.
        num_ids: V; ids are 0 to V - 1.
        out: float64 `[R, V]`, unit stride along V, to write to; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        `[R, V]` float64.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    return _fill(keys, words, num_ids, out, config, is_gumbel=False)


def gumbel_noise(
    keys: NoiseKeys,
    words: torch.Tensor,
    num_ids: int,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return Gumbel noise `-log(-log(1 - u))` of the same uniforms: `argmax(log p + g)` draws from p.

    Devices differ in the last bits of `log`. Arguments and errors are those of `uniforms`, except that `out` is float32.

    Returns:
        `[R, V]` float32.
    """
    return _fill(keys, words, num_ids, out, config, is_gumbel=True)


def _fill(
    keys: NoiseKeys,
    words: torch.Tensor,
    num_ids: int,
    out: torch.Tensor | None,
    config: LaunchConfig | None,
    *,
    is_gumbel: bool,
) -> torch.Tensor:
    if keys.seeds.dim() != 1:
        raise ValueError(f"keys.seeds must be int64 [R], not of shape {list(keys.seeds.shape)}")
    if num_ids < 1:
        raise ValueError(f"num_ids={num_ids} must be at least 1")
    num_rows = len(keys.seeds)
    check_keys(keys, num_rows, keys.seeds)
    check_tensor("words", words, (num_rows,), (torch.int64,), keys.seeds)
    dtype = torch.float32 if is_gumbel else torch.float64
    if out is None:
        out = torch.empty((num_rows, num_ids), dtype=dtype, device=words.device)
    check_tensor("out", out, (num_rows, num_ids), (dtype,), keys.seeds, is_row_strided=True)
    if num_rows == 0:
        return out
    if backend_for(words) is Backend.REFERENCE:
        counters = counter_words(keys, words)
        if is_gumbel:
            return out.copy_(-noise.exponentials(*counters, num_ids).log())
        return out.copy_(noise.uniforms(*counters, num_ids))
    from specdec_kernels.triton.noise.kernel import noise_triton  # imports Triton

    noise_triton(keys, words, out, config, is_gumbel=is_gumbel)
    return out
