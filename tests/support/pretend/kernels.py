"""Triton kernels on the pretend device: launches are counted, and the operation's torch reference computes the results."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from pretend.dispatch import Dispatcher
from pretend.tensor import held

PACKAGE = "specdec_kernels.triton"
RESULTS = {
    "block_tables": 1, "gumbel_sample": 1, "list_logprobs": 1, "matmul_invariant": 1, "process_logits": 1, "rms_norm": 2,
    "rope_kv_write": 1, "silu_mul": 1, "strict_verify": 4,
}  # fmt: skip
"""Operations whose reference returns what the launcher writes to its last arguments, and how many results there are."""
IN_PLACE = (
    "accepted_rows",
    "advance_rows",
    "append_tokens",
    "kv_compact",
    "kv_write",
    "move_rows",
    "penalise",
)
"""Operations whose reference writes to the same arguments as the launcher."""


class Launcher:
    """Stands for the function of an operation that launches its kernels.

    Args:
        name: of the operation.
        launch: the function itself, run for what it launches and allocates.
        compute: computes the results from the same arguments, on the host.
        device: the device.
    """

    def __init__(
        self, name: str, launch: Callable[..., None], compute: Callable[..., None], device: Dispatcher
    ) -> None:
        self._name, self._launch, self._compute, self._device = name, launch, compute, device

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._launch(*args, **kwargs)
        given, named = tree_map(held, args), tree_map(held, kwargs)

        def compute() -> None:
            with torch._C._DisableTorchDispatch():
                self._compute(*given, **named)

        compute()
        if self._device.tape is not None:
            self._device.tape.add(compute, (), {}, [])


def _writing(name: str) -> Callable[..., None]:
    reference, count = _reference(name), RESULTS[name]

    def compute(*args: Any) -> None:
        *given, _config = args
        outs, given = given[-count:], given[:-count]
        results = reference(*given)
        for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
            if out is not None:
                out.copy_(result)

    return compute


def _in_place(name: str) -> Callable[..., None]:
    reference = _reference(name)
    return lambda *args: reference(*args[:-1])


def _attend(*args: Any, num_shares: int, config: Any, **options: Any) -> None:
    _reference("paged_attention")(*args, **options)


def _match(*args: Any) -> None:
    *given, keeps_first, fills, token_ids, num_nodes, _config = args
    found = _reference("ngram_match")(*given, token_ids.shape[1], keeps_first, fills)
    for out, result in zip((token_ids, num_nodes), found, strict=True):
        out.copy_(result)


def _noise(keys: Any, words: torch.Tensor, out: torch.Tensor, config: Any, *, is_gumbel: bool) -> None:
    operation = importlib.import_module(f"{PACKAGE}.noise")
    (operation.gumbel_noise if is_gumbel else operation.uniforms)(keys, words, out.shape[1], out=out)


def _reference(name: str) -> Callable[..., Any]:
    module = importlib.import_module(f"{PACKAGE}.{name}.reference")
    function: Callable[..., Any] = getattr(module, f"{name}_reference")
    return function


def variant_of(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what Triton compiles a kernel for: dtypes, alignment, which integers are 1 or multiples of 16, and constants."""
    named = {param.name: value for param, value in zip(kernel.params, args, strict=False)} | kwargs
    parts: list[object] = [kernel.__name__]
    for param in kernel.params:
        value = named.pop(param.name)
        if isinstance(value, torch.Tensor):
            is_free = param.do_not_specialize or param.do_not_specialize_on_alignment
            parts.append((value.dtype, is_free or value.data_ptr() % 16 == 0))
        elif param.is_constexpr or value is None or isinstance(value, bool):
            parts.append((param.name, value))
        elif isinstance(value, int):
            kind = "i32" if -(2**31) <= value < 2**31 else "i64"
            is_free = param.do_not_specialize
            parts.append(kind if is_free else (kind, value == 1, value % 16 == 0))
        else:
            parts.append(type(value).__name__)
    del named["grid"], named["warmup"]
    return (*parts, *sorted(named.items()))


@contextmanager
def kernels(device: Dispatcher) -> Iterator[None]:
    """Replace every launcher, and let a launch of a kernel count itself and do nothing."""
    from triton.runtime.jit import JITFunction

    computed = {name: _writing(name) for name in RESULTS} | {name: _in_place(name) for name in IN_PLACE}
    computed |= {"paged_attention": _attend, "noise": _noise, "ngram_match": _match}
    replaced: list[tuple[Any, str, Any]] = [(JITFunction, "run", JITFunction.run)]

    def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
        device.counts.kernels[kernel.__name__] += 1
        device.compile(variant_of(kernel, args, kwargs))
        device.launch(kernel.__name__)

    try:
        JITFunction.run = run
        for name, compute in computed.items():
            module, function = importlib.import_module(f"{PACKAGE}.{name}.kernel"), f"{name}_triton"
            launch = getattr(module, function)
            replaced.append((module, function, launch))
            setattr(module, function, Launcher(name, launch, compute, device))
        yield
    finally:
        for module, function, original in reversed(replaced):
            setattr(module, function, original)
