"""Workloads of the tuner: for every operation the sizes of real models, and calls with these sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from specdec_kernels.triton.accepted_rows import accepted_rows
from specdec_kernels.triton.advance_rows import LoopRows, advance_rows
from specdec_kernels.triton.block_tables import block_tables
from specdec_kernels.triton.block_verify import block_verify
from specdec_kernels.triton.gumbel_sample import gumbel_sample
from specdec_kernels.triton.kv_compact import kv_compact
from specdec_kernels.triton.kv_write import kv_write
from specdec_kernels.triton.list_logprobs import list_logprobs
from specdec_kernels.triton.matmul_invariant import matmul_invariant
from specdec_kernels.triton.ngram_match import ngram_match
from specdec_kernels.triton.noise import NoiseKeys, gumbel_noise
from specdec_kernels.triton.paged_attention import paged_attention
from specdec_kernels.triton.paged_attention.config import Problem
from specdec_kernels.triton.penalise import PathRows, Texts, penalise
from specdec_kernels.triton.process_logits import Cuts, process_logits
from specdec_kernels.triton.rejection_verify import rejection_verify
from specdec_kernels.triton.rms_norm import rms_norm
from specdec_kernels.triton.rope_kv_write import rope_kv_write
from specdec_kernels.triton.silu_mul import silu_mul
from specdec_kernels.triton.sound_probs import sound_probs
from specdec_kernels.triton.strict_verify import strict_verify

Call = Callable[[Any], tuple[torch.Tensor, ...]]
"""Runs an operation with a launch configuration, or None for its own choice, and returns its outputs."""

REQUESTS = 8
NODES = 4
ROWS = REQUESTS * (NODES + 1)
"""Rows of a pass that verifies drafts. One configuration must also serve a single row, for batch-invariant results."""
BLOCK_SIZE = 16
BF16 = torch.bfloat16

VOCABULARIES = [(32000,), (128256,), (151936,), (262144,)]
HEADS = [(2, 128), (8, 64), (8, 128), (32, 128)]


@dataclass(frozen=True)
class Workload:
    """Calls of one operation.

    Args:
        sizes: arguments of its heuristic, one tuple for each problem.
        make: makes inputs of these sizes on a device, always the same, and returns the call.
    """

    sizes: list[tuple[Any, ...]]
    make: Callable[..., Call]


def _keys(device: torch.device, size: int) -> NoiseKeys:
    numbers = torch.arange(size, device=device)
    return NoiseKeys(numbers * 7919, numbers + 100, numbers % 2)


def _drafts(device: torch.device, vocab_size: int) -> tuple[torch.Tensor, ...]:
    requests = torch.arange(REQUESTS, device=device)
    logits = 3 * torch.randn(ROWS, vocab_size, device=device, dtype=BF16)
    draft = torch.randint(vocab_size, (REQUESTS, NODES), device=device)
    return logits, draft, requests * (NODES + 1), torch.full_like(requests, NODES)


def _sampled(device: torch.device, vocab_size: int) -> tuple[Any, ...]:
    return *_drafts(device, vocab_size), torch.ones(REQUESTS, device=device), _keys(device, REQUESTS)


def _pages(device: torch.device, num_blocks: int, heads: int, dim: int) -> torch.Tensor:
    return torch.randn(num_blocks, BLOCK_SIZE, heads, dim, device=device, dtype=BF16)


def _strict_verify(device: torch.device, vocab_size: int) -> Call:
    given = _sampled(device, vocab_size)
    return lambda config: strict_verify(*given, config=config)


def _rejection_verify(device: torch.device, vocab_size: int) -> Call:
    given = _sampled(device, vocab_size)
    q = torch.randn(REQUESTS, NODES, vocab_size, device=device).softmax(-1)
    return lambda config: rejection_verify(*given, draft_probs=q, config=config)


def _block_verify(device: torch.device, vocab_size: int) -> Call:
    given = _sampled(device, vocab_size)
    q = torch.randn(REQUESTS, NODES, vocab_size, device=device).softmax(-1)
    return lambda config: block_verify(*given, draft_probs=q, config=config)


def _sound_probs(device: torch.device, vocab_size: int) -> Call:
    _, draft, *_ = _drafts(device, vocab_size)
    q = torch.randn(REQUESTS, NODES + 1, vocab_size, device=device).softmax(-1)
    return lambda config: sound_probs(draft, q, 1e-5, config=config)


def _gumbel_sample(device: torch.device, vocab_size: int) -> Call:
    logits = 3 * torch.randn(ROWS, vocab_size, device=device, dtype=BF16)
    temperatures, keys = torch.ones(ROWS, device=device), _keys(device, ROWS)
    return lambda config: (gumbel_sample(logits, temperatures, keys, config=config),)


def _noise(device: torch.device, num_ids: int) -> Call:
    keys = _keys(device, ROWS)
    return lambda config: (gumbel_noise(keys, keys.samples, num_ids, config=config),)


def _accepted_rows(device: torch.device, width: int) -> Call:
    states = torch.randn(4, ROWS, width, device=device, dtype=BF16)
    starts = (NODES + 1) * torch.arange(REQUESTS, device=device)
    counts, out = torch.arange(REQUESTS, device=device) % (NODES + 1), torch.zeros_like(states)
    return lambda config: (accepted_rows(states, starts, counts, out=out, config=config),)


def _advance_rows(device: torch.device, num_rows: int) -> Call:
    size = num_rows // NODES
    ones = torch.ones(size, dtype=torch.int64, device=device)
    verdict = torch.tensor([1, 0, size, NODES], device=device)
    ids, positions, slots, last_rows = ones.new_zeros((4, num_rows))
    passed = ids, positions, slots, ones.new_zeros(size + 1), ones, last_rows
    table = 100 * ones, 101 * ones, 512 * ones.cumsum(0), (NODES - 1) * ones, 900 * ones
    rows = LoopRows(*passed, *table, verdict)
    memory = torch.arange(size * (1 + NODES), device=device) % NODES

    def call(config: Any) -> tuple[torch.Tensor, ...]:
        changed = LoopRows(*(part.clone() for part in rows))
        advance_rows(changed, memory, NODES, config=config)
        return tuple(changed)

    return call


def _penalise(device: torch.device, path_len: int) -> Call:
    count, size = REQUESTS * 1024, REQUESTS * (path_len + 1)
    ids, rows = torch.arange(count, device=device) % 100_000, torch.arange(size, device=device)
    starts, ones = torch.arange(0, count + 1, 1024, device=device), torch.ones(3, REQUESTS, device=device)
    texts = Texts(ids, ids.float() % 3, starts, 1.1 * ones)
    places = rows, rows // (path_len + 1), torch.zeros_like(rows), rows % (path_len + 1) - 1
    paths = PathRows(*places, ids[: max(1, path_len)], None, path_len)
    logits = torch.randn(size, 128_256, device=device)

    return lambda config: (penalise(logits, texts, paths, config=config),)


def _process_logits(device: torch.device, vocab_size: int) -> Call:
    logits, ones = (
        3 * torch.randn(ROWS, vocab_size, device=device, dtype=BF16),
        torch.ones(ROWS, device=device),
    )
    cuts = Cuts(ones, 0.01 * ones, torch.full((ROWS,), 50, device=device), 0.9 * ones)
    return lambda config: (process_logits(logits, cuts=cuts, config=config),)


def _list_logprobs(device: torch.device, vocab_size: int) -> Call:
    logits = 3 * torch.randn(ROWS, vocab_size, device=device, dtype=BF16)
    requests, tokens = torch.arange(REQUESTS, device=device), torch.arange(ROWS, device=device)
    given = (logits, requests * (NODES + 1), None, tokens.view(REQUESTS, -1), requests, 5)
    return lambda config: (list_logprobs(*given, config=config),)


def _ngram_match(device: torch.device, width: int) -> Call:
    tokens = torch.randint(1000, (REQUESTS, width), device=device)
    lengths = torch.full((REQUESTS,), width, device=device)
    return lambda config: ngram_match(tokens, lengths, 1, 4, NODES, config=config)


def _block_tables(device: torch.device, width: int) -> Call:
    firsts = torch.arange(REQUESTS, device=device)
    return lambda config: (block_tables(firsts, firsts, firsts, width, config=config),)


def _kv_compact(device: torch.device, path_len: int) -> Call:
    key, value = torch.randn(2, 32, 4 * REQUESTS, BLOCK_SIZE, 8, 128, device=device, dtype=BF16)
    first = 4 * BLOCK_SIZE * torch.arange(REQUESTS, device=device)
    paths = 2 * torch.arange(path_len, device=device).repeat(REQUESTS, 1)

    def call(config: Any) -> tuple[torch.Tensor, ...]:
        kv_compact(key, value, first, paths, config=config)
        return key, value

    return call


def _kv_write(device: torch.device, num_kv_heads: int, head_dim: int) -> Call:
    key, value = torch.randn(2, ROWS, num_kv_heads, head_dim, device=device, dtype=BF16)
    pages = _pages(device, ROWS, num_kv_heads, head_dim), _pages(device, ROWS, num_kv_heads, head_dim)
    slots = BLOCK_SIZE * torch.arange(ROWS, device=device) + 3

    def call(config: Any) -> tuple[torch.Tensor, ...]:
        kv_write(key, value, *pages, slots, config=config)
        return pages

    return call


def _rope_kv_write(device: torch.device, group: int, head_dim: int) -> Call:
    query = torch.randn(ROWS, 8 * group, head_dim, device=device, dtype=BF16)
    key, value = torch.randn(2, ROWS, 8, head_dim, device=device, dtype=BF16)
    cos, sin = torch.rand(2, ROWS, head_dim // 2, device=device)
    pages = _pages(device, ROWS, 8, head_dim), _pages(device, ROWS, 8, head_dim)
    slots = BLOCK_SIZE * torch.arange(ROWS, device=device) + 3
    given = (query, key, value, cos, sin, *pages, slots)
    return lambda config: (rope_kv_write(*given, config=config), *pages)


def _matmul_invariant(device: torch.device, out_features: int, itemsize: int) -> Call:
    dtype = BF16 if itemsize == 2 else torch.float32
    x = torch.randn(ROWS, 4096, device=device, dtype=dtype)
    weight = torch.randn(out_features, 4096, device=device, dtype=dtype) / 64
    return lambda config: (matmul_invariant(x, weight, config=config),)


def _rms_norm(device: torch.device, size: int) -> Call:
    x, residual = torch.randn(2, ROWS, size, device=device, dtype=BF16)
    weight = torch.ones(size, device=device, dtype=BF16)

    def call(config: Any) -> tuple[torch.Tensor, ...]:
        normed, total = rms_norm(x, weight, epsilon=1e-6, residual=residual, config=config)
        assert total is not None
        return normed, total

    return call


def _silu_mul(device: torch.device, size: int) -> Call:
    gate, up = torch.randn(2, ROWS, size, device=device, dtype=BF16)
    return lambda config: (silu_mul(gate, up, config=config),)


def _paged_attention(device: torch.device, problem: Problem) -> Call:
    p = problem
    query = torch.randn(p.num_rows, p.group * p.num_kv_heads, p.key_dim, device=device, dtype=BF16)
    per_request = p.max_context_len // BLOCK_SIZE
    num_blocks = p.num_requests * per_request
    pages = (
        _pages(device, num_blocks, p.num_kv_heads, p.key_dim),
        _pages(device, num_blocks, p.num_kv_heads, p.value_dim),
    )
    tables = torch.randperm(num_blocks, device=device).view(p.num_requests, per_request)
    rows = p.num_rows // p.num_requests
    starts = torch.arange(0, p.num_rows + 1, rows, device=device)
    lengths = torch.full((p.num_requests,), p.max_context_len, device=device)
    given = (query, *pages, tables, starts, lengths)
    return lambda config: (paged_attention(*given, scale=p.key_dim**-0.5, config=config),)


def _problems() -> list[tuple[Problem]]:
    """Return problems of decoding and verification for 32 query heads with 2 and 8 KV heads."""
    return [
        (Problem(requests * rows, requests, 32 // heads, heads, 128, 128, BF16.itemsize, length),)
        for heads in (2, 8)
        for requests in (1, 8, 32)
        for rows in (1, NODES + 1)
        for length in (1024, 8192)
    ]


WORKLOADS = {
    "accepted_rows": Workload([(1024,), (4096,), (8192,)], _accepted_rows),
    "advance_rows": Workload([(4,), (32,), (256,)], _advance_rows),
    "block_tables": Workload([(16,), (128,), (1024,)], _block_tables),
    "block_verify": Workload(VOCABULARIES, _block_verify),
    "gumbel_sample": Workload(VOCABULARIES, _gumbel_sample),
    "kv_compact": Workload([(4,), (8,), (16,)], _kv_compact),
    "kv_write": Workload(HEADS, _kv_write),
    "list_logprobs": Workload(VOCABULARIES, _list_logprobs),
    "matmul_invariant": Workload(
        [(n, size) for n in (1024, 4096, 14336, 128256) for size in (2, 4)], _matmul_invariant
    ),
    "ngram_match": Workload([(2048,), (8192,), (32768,)], _ngram_match),
    "noise": Workload(VOCABULARIES, _noise),
    "paged_attention": Workload([*_problems()], _paged_attention),
    "penalise": Workload([(0,), (4,), (8,)], _penalise),
    "process_logits": Workload(VOCABULARIES, _process_logits),
    "rejection_verify": Workload(VOCABULARIES, _rejection_verify),
    "rms_norm": Workload([(128,), (1024,), (2048,), (4096,), (8192,)], _rms_norm),
    "rope_kv_write": Workload([(1, 64), (4, 128), (7, 128), (16, 128)], _rope_kv_write),
    "silu_mul": Workload([(3072,), (8192,), (14336,), (28672,)], _silu_mul),
    "sound_probs": Workload(VOCABULARIES, _sound_probs),
    "strict_verify": Workload(VOCABULARIES, _strict_verify),
}
"""Workloads by the operation's folder."""
