"""Sampling tokens from logits, without a draft."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from device.kernel_case import KernelCase, Problem, num_bytes
from device.sizes import Sizes
from specdec.noise import Stream, node_word
from specdec_kernels.triton import (
    Cuts,
    NoiseKeys,
    PathRows,
    Texts,
    gumbel_noise,
    gumbel_sample,
    list_logprobs,
    penalise,
    process_logits,
    uniforms,
)

_LOG_BITS = 1e-5
"""Devices and numpy differ in the last bits of `log` and `exp`."""


def keys_of(sizes: Sizes, count: int) -> NoiseKeys:
    """Return keys of `count` rows or requests."""
    rows = sizes.arange(count)
    return NoiseKeys(rows * 104729, rows + sizes.context, torch.zeros_like(rows))


def make_gumbel_noise(sizes: Sizes) -> Problem:
    """Gumbel noise for every row."""
    keys, vocab_size = keys_of(sizes, sizes.num_rows), sizes.shape.vocab_size
    words = torch.full((sizes.num_rows,), node_word(Stream.TARGET), device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        return (gumbel_noise(keys, words, vocab_size),)

    return Problem(call, sizes.num_rows * vocab_size * 4, tolerance=_LOG_BITS)


def make_uniforms(sizes: Sizes) -> Problem:
    """Uniforms for every row, in float64."""
    keys, vocab_size = keys_of(sizes, sizes.num_rows), sizes.shape.vocab_size
    words = torch.full((sizes.num_rows,), node_word(Stream.ACCEPT), device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        return (uniforms(keys, words, vocab_size),)

    return Problem(call, sizes.num_rows * vocab_size * 8)


def make_gumbel_sample(sizes: Sizes) -> Problem:
    """One token for every row."""
    logits = sizes.randn(sizes.num_rows, sizes.shape.vocab_size)
    temperatures = torch.full((sizes.num_rows,), 0.8, device=sizes.device)
    keys = keys_of(sizes, sizes.num_rows)

    def call() -> Sequence[torch.Tensor]:
        return (gumbel_sample(logits, temperatures, keys),)

    return Problem(call, num_bytes(logits))


def make_process_logits(sizes: Sizes) -> Problem:
    """Temperature, top-k and top-p for every row."""
    logits = sizes.randn(sizes.num_rows, sizes.shape.vocab_size)
    cuts = Cuts(
        temperatures=torch.full((sizes.num_rows,), 0.8, device=sizes.device),
        top_k=torch.full((sizes.num_rows,), 50, device=sizes.device),
        top_p=torch.full((sizes.num_rows,), 0.95, device=sizes.device),
    )

    def call() -> Sequence[torch.Tensor]:
        return (process_logits(logits, cuts=cuts),)

    return Problem(call, num_bytes(logits) + logits.numel() * 4, tolerance=_LOG_BITS)


def make_list_logprobs(sizes: Sizes) -> Problem:
    """The token of every row and the five most probable ones."""
    logits = sizes.randn(sizes.num_rows, sizes.shape.vocab_size)
    rows = torch.arange(sizes.num_rows, device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        return (list_logprobs(logits, rows, None, rows[:, None], rows, 5),)

    return Problem(call, num_bytes(logits), tolerance=_LOG_BITS)


def make_penalise(sizes: Sizes) -> Problem:
    """All penalties for every row, with texts of half the context."""
    logits = sizes.randn(sizes.num_rows, sizes.shape.vocab_size).float()
    size, length = sizes.num_rows, max(1, sizes.context // 2)
    starts, rows = (
        torch.arange(0, size * length + 1, length, device=sizes.device),
        torch.arange(size, device=sizes.device),
    )
    ids = torch.arange(size * length, device=sizes.device) % length
    texts = Texts(
        ids,
        (ids % 3).float(),
        starts,
        torch.full((3, size), 1.1, device=sizes.device),
    )
    paths = PathRows(rows, rows, torch.zeros_like(rows), torch.full_like(rows, -1), ids[:1], None, 0)

    def call() -> Sequence[torch.Tensor]:
        return (penalise(logits, texts, paths),)

    return Problem(call, num_bytes(logits) * 2)


CASES = (
    KernelCase("noise", "gumbel_noise", make_gumbel_noise),
    KernelCase("noise", "uniforms", make_uniforms),
    KernelCase("gumbel_sample", "temperature 0.8", make_gumbel_sample),
    KernelCase("list_logprobs", "5 most probable", make_list_logprobs),
    KernelCase("penalise", "all penalties", make_penalise),
    KernelCase("process_logits", "temperature, top-k, top-p", make_process_logits),
)
