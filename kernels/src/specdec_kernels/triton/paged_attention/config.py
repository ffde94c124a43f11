"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_kernels.triton.launch import check_power_of_two, power_of_two, roomy

_PROGRAMS_WANTED = 264  # two per multiprocessor of the largest supported GPU
_MOST_SPLITS = 32
_FEWEST_TOKENS_PER_SPLIT = 256
_INVARIANT_ROWS = 64
_BLOCKS = (16, 32, 64)
"""Rows of the query tiles that the heuristic chooses from."""
_LEAST_REQUESTS, _MORE_REQUESTS = 16, 8
_INVARIANT_SPLIT = 1024


@dataclass(frozen=True)
class Problem:
    """Static sizes of a call; none depends on data."""

    num_rows: int
    """T, including padding."""
    num_requests: int
    group: int
    """Query heads per KV head."""
    num_kv_heads: int
    key_dim: int
    value_dim: int
    itemsize: int
    """Bytes per element of the cache."""
    max_context_len: int
    """Maximum context length of a request."""


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block_rows: rows of the query tile, one for each pair of token and query head of a KV head; a power of two.
        block_tokens: cache tokens per loop iteration; a power of two.
        num_warps: warps of one program.
        num_stages: pipeline stages.
        num_splits: number of equal shares of the tokens that a tile attends to, if `split_size` is None.
        split_size: tokens of one share, counted from position 0; a multiple of `block_tokens`. The summation order of a
            row then depends only on its own position. None splits into `num_splits` shares.
    """

    block_rows: int
    block_tokens: int
    num_warps: int
    num_stages: int = 2
    num_splits: int = 1
    split_size: int | None = None

    def __post_init__(self) -> None:
        check_power_of_two("block_rows", self.block_rows, least=16)
        check_power_of_two("block_tokens", self.block_tokens, least=16)
        if self.num_splits < 1:
            raise ValueError(f"num_splits={self.num_splits} must be at least 1")
        if self.split_size is None:
            return
        if self.num_splits != 1:
            raise ValueError(f"num_splits={self.num_splits} has no meaning with split_size={self.split_size}")
        if self.split_size < 1 or self.split_size % self.block_tokens:
            raise ValueError(
                f"split_size={self.split_size} must be a multiple of block_tokens={self.block_tokens}"
            )

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a row's result depends, bit for bit, only on its own request."""
        return self.split_size is not None or self.num_splits == 1

    def shares(self, max_context_len: int) -> int:
        """Return the number of shares of a query tile's context."""
        if self.split_size is None:
            return self.num_splits
        return max(1, -(-max_context_len // self.split_size))


def heuristic(problem: Problem) -> LaunchConfig:
    """Return a configuration with a tile sized for the rows per request and enough splits to fill the GPU."""
    rows_per_request = -(-problem.num_rows // max(1, problem.num_requests)) * problem.group
    block_rows = power_of_two(max(rows_per_request, problem.group), _BLOCKS[0], _BLOCKS[-1])
    return _with_splits(_with_rows(problem, block_rows), problem)


def heuristics(problem: Problem) -> list[LaunchConfig]:
    """Return a configuration for each kernel that `heuristic` chooses for passes of any number of rows and contexts."""
    counts = (1, 2) if problem.max_context_len >= 2 * _FEWEST_TOKENS_PER_SPLIT else (1,)
    tiles = dict.fromkeys(_with_rows(problem, rows) for rows in _BLOCKS)
    return [replace(config, num_splits=count) for config in tiles for count in counts]


def invariant(problem: Problem) -> LaunchConfig:
    """Return a configuration that depends only on the model, for batch-invariant results."""
    return replace(_with_rows(problem, _INVARIANT_ROWS), split_size=_INVARIANT_SPLIT)


def requests_block(num_requests: int) -> int:
    """Return how many requests a program looks through at once for its own."""
    return roomy(num_requests, _LEAST_REQUESTS, _MORE_REQUESTS)


def request_counts(num_requests: int) -> list[int]:
    """Return one number of requests for each kernel that passes of up to so many need."""
    counts = [1]
    while requests_block(counts[-1]) < num_requests:
        counts.append(requests_block(counts[-1]) + 1)
    return counts


def _with_rows(problem: Problem, block_rows: int) -> LaunchConfig:
    block_rows = max(block_rows, power_of_two(problem.group))
    bytes_per_token = (power_of_two(problem.key_dim) + power_of_two(problem.value_dim)) * problem.itemsize
    block_tokens = 64 if bytes_per_token <= 512 else 32 if bytes_per_token <= 1024 else 16
    return LaunchConfig(block_rows, block_tokens, num_warps=8 if block_rows >= 128 else 4)


def _with_splits(config: LaunchConfig, problem: Problem) -> LaunchConfig:
    tiles = problem.num_rows // (config.block_rows // problem.group) + problem.num_requests
    wanted = _PROGRAMS_WANTED // max(1, tiles * problem.num_kv_heads)
    useful = problem.max_context_len // _FEWEST_TOKENS_PER_SPLIT
    return replace(config, num_splits=max(1, min(wanted, useful, _MOST_SPLITS)))
