"""Launch configurations of attention and of invariant products, searched from the heuristics' by one parameter at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

import torch

from device.cases.cache import make_paged_attention
from device.cases.layers import make_matmul_invariant
from device.clock import median_ms
from device.kernel_case import Problem
from device.kernel_part import is_near
from device.sizes import Sizes
from specdec_kernels.triton.matmul_invariant import config as products
from specdec_kernels.triton.paged_attention import config as attention

Config = attention.LaunchConfig | products.LaunchConfig
_ATTENTION = {
    "num_splits": (1, 2, 4, 8, 16, 32),
    "block_tokens": (16, 32, 64, 128),
    "num_warps": (2, 4, 8),
    "num_stages": (2, 3, 4),
}
_PRODUCTS = {
    "block_columns": (16, 32, 64, 128),
    "num_stages": (3, 5, 8),
    "block_depth": (32, 64, 128),
    "num_warps": (2, 4, 8),
    "block_rows": (16, 32, 64),
}
_ROWS = (1, 8, 64)
"""Rows that a product's configuration serves, since it must not depend on their number."""


def tuned(
    sizes: Sizes, contexts: Sequence[tuple[int, int, int]], seconds: float, num_calls: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each problem: the heuristic's configuration, the best one found, and milliseconds of each tried.

    Args:
        sizes: model, dtype and device.
        contexts: batch size, k and context of each problem of attention.
        seconds: shared equally by the problems that are left.
        num_calls: timed calls of each configuration.
    """
    end = perf_counter() + seconds
    problems = [*_attention_problems(sizes, contexts), *_product_problems(sizes)]
    for index, (name, first, values, makers) in enumerate(problems):
        until = perf_counter() + (end - perf_counter()) / (len(problems) - index)
        yield _search(name, first, values, makers, sizes.device, until, num_calls)


Maker = Callable[[Any], Problem]


def _attention_problems(
    sizes: Sizes, contexts: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[str, Config, dict[str, tuple[int, ...]], list[Maker]]]:
    for batch_size, k, context in contexts:
        here = replace(sizes, batch_size=batch_size, k=k, context=context)
        shape = here.shape
        problem = attention.Problem(
            num_rows=here.num_rows,
            num_requests=batch_size,
            group=shape.num_heads // shape.num_kv_heads,
            num_kv_heads=shape.num_kv_heads,
            key_dim=here.head_dim,
            value_dim=here.head_dim,
            itemsize=here.dtype.itemsize,
            max_context_len=context,
        )
        name = f"paged_attention, batch {batch_size}, {1 + k} rows each, context {context}"
        yield name, attention.heuristic(problem), _ATTENTION, [_attention_maker(here)]


def _attention_maker(sizes: Sizes) -> Maker:
    return lambda config: make_paged_attention(sizes, config)


def _product_problems(sizes: Sizes) -> Iterator[tuple[str, Config, dict[str, tuple[int, ...]], list[Maker]]]:
    shape = sizes.shape
    heads = shape.num_heads + 2 * shape.num_kv_heads
    widths = {
        "queries, keys and values": (heads * sizes.head_dim, shape.hidden_size),
        "attention's output": (shape.hidden_size, shape.hidden_size),
        "gate and up": (2 * shape.intermediate_size, shape.hidden_size),
        "down": (shape.hidden_size, shape.intermediate_size),
        "head": (shape.vocab_size, shape.hidden_size),
    }
    for name, width in widths.items():
        makers = [_product_maker(replace(sizes, batch_size=rows, k=0), width) for rows in _ROWS]
        first = products.heuristic(width[0], sizes.dtype.itemsize)
        yield f"matmul_invariant, {name}, {width[0]} x {width[1]}", first, _PRODUCTS, makers


def _product_maker(sizes: Sizes, widths: tuple[int, int]) -> Maker:
    return lambda config: make_matmul_invariant(sizes, widths, config)


def _search(
    name: str,
    first: Config,
    values: dict[str, tuple[int, ...]],
    makers: Sequence[Maker],
    device: torch.device,
    until: float,
    num_calls: int,
) -> dict[str, Any]:
    """Return what was tried; a configuration that fails, or computes something else than torch, is not chosen."""
    wanted = []
    for maker in makers:
        torch.manual_seed(0)
        wanted.append([tensor.clone() for tensor in maker(None).by_torch()])

    def taken(config: Config) -> float | str:
        total = 0.0
        for maker, expected in zip(makers, wanted, strict=True):
            torch.manual_seed(0)
            problem = maker(config)
            try:
                found = [tensor.clone() for tensor in problem.call()]
            except Exception as error:  # of the compiler and the driver: too much shared memory, for example
                return f"{type(error).__name__}: {str(error)[:100]}"
            if not all(is_near(a, b, problem.tolerance) for a, b in zip(found, expected, strict=True)):
                return "computes something else"
            total += median_ms(problem.call, device, num_calls)
        return total

    tried: dict[Config, float | str] = {first: taken(first)}
    best, is_whole = first, True
    for key, options in values.items():
        for value in options:
            config = _changed(best, key, value)
            if config is None or config in tried:
                continue
            if perf_counter() >= until:
                is_whole = False
                break
            tried[config] = taken(config)
        times = {config: time for config, time in tried.items() if isinstance(time, float)}
        best = min(times, key=times.__getitem__, default=first)
    return {
        "problem": name,
        "heuristic": asdict(first),
        "heuristic_ms": tried[first],
        "best": asdict(best),
        "best_ms": tried[best],
        "is_whole": is_whole,
        "tried": [[*asdict(config).values(), time] for config, time in tried.items()],
    }


def _changed(config: Config, key: str, value: int) -> Config | None:
    try:
        changed: Config = replace(config, **{key: value})  # type: ignore[arg-type]  # a key of its own class
    except ValueError:
        return None
    return changed
