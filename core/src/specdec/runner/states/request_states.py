"""The states of all requests of one model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from specdec.errors import ModelError
from specdec.interfaces.forward import PackedBatch
from specdec.interfaces.head import DraftHead
from specdec.interfaces.kv_cache import KVCache
from specdec.runner.spread import places
from specdec.runner.states.checkpoints import Checkpoints
from specdec.runner.states.kinds import keeps_states, layers_without_attention, state_layers
from specdec.runner.states.pool import StatePool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

    from specdec.runner.states.pass_cache import PassCache, StateKey

_SNAPSHOTS = 4
"""Snapshots for each request that can run. A pass takes three of a request at most."""


class RequestStates:
    """States of the layers of one model, for every request and for cached prefixes; see `specdec.interfaces.KeptStates`.

    Args:
        model: the model, at least one of whose layers keeps states.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.layers = state_layers(model.config)
        self.layers_without_attention = layers_without_attention(model.config)
        self.max_requests = 0
        self.continues_one_by_one = False
        """Whether layers take only one row at a time after a state; `transformers`' Mamba layers drop the state otherwise."""
        self._pool = StatePool({})
        self._checkpoints = Checkpoints(0, 0, 0, 0, self._pool.copy)

    def bytes_per_request(self, *, is_prefix_cached: bool) -> int:
        """Return the memory of one request's states, with its share of the snapshots of prefixes."""
        return (2 + _SNAPSHOTS * is_prefix_cached) * self._pool.num_bytes

    def allocate(self, num_requests: int, block_size: int, lag: int = 0) -> None:
        """Allocate memory.

        Args:
            num_requests: maximum number of requests that run at once.
            block_size: tokens per block of the prefix cache; 0 without.
            lag: see `Checkpoints`.
        """
        num_snapshots = _SNAPSHOTS * num_requests if block_size else 0
        self.max_requests = num_requests
        self._pool.allocate(2 * num_requests + num_snapshots)
        self._checkpoints = Checkpoints(num_requests, num_snapshots, block_size, lag, self._pool.copy)

    def resume(self, owner: object, first_slot: int, num_rows: int) -> int:
        """See `KeptStates.resume`."""
        return self._checkpoints.resume(owner, first_slot, num_rows)

    def holds(self, owner: object, num_rows: int) -> bool:
        """See `KeptStates.holds`."""
        return self._checkpoints.holds(owner, num_rows)

    def release(self, owner: object) -> None:
        """See `KeptStates.release`."""
        self._checkpoints.release(owner)

    def move(self, source: int, destination: int, num_rows: int) -> None:
        """See `Checkpoints.move`."""
        self._checkpoints.move(source, destination, num_rows)

    def cache(self, batch: PackedBatch, length: int = 0) -> PassCache:
        """Return the cache of a pass, which says that it holds `length` tokens."""
        from specdec.runner.states.pass_cache import PassCache, Work

        cache = PassCache(length, self.layers)
        plan = self._checkpoints.plan(batch)
        cache.work = Work(plan, self._pool, len(batch.token_ids), self.continues_one_by_one)
        return cache

    def find_modules(self, run: Callable[[PassCache], object]) -> None:
        """Find the modules that keep states, in a pass of one text, and have them run each request's rows from now on.

        Args:
            run: runs the pass with a cache.

        Raises:
            ModelError: if a layer does not keep its state in the cache, or attends in the same module.
        """
        from specdec.runner.states.pass_cache import PassCache
        from specdec.runner.states.split_forward import SplitForward

        cache = PassCache(0, self.layers)
        name = type(self._model).__name__
        found: dict[nn.Module, list[StateKey]] = {}
        with _innermost(self._model) as stack:
            attended: set[nn.Module] = set()
            cache.on_write = lambda key: found.setdefault(stack[-1], []).append(key)
            cache.on_attend = lambda: attended.update(stack)
            try:
                run(cache)
            except (ModelError, MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # its own code, which may want a cache of its own
                raise ModelError(
                    f"{name} keeps states otherwise than in the cache of transformers, from where they could be rolled back "
                    f"({type(error).__name__}: {error}); specdec cannot serve this model"
                ) from error
        missing = sorted(set(self.layers) - {key[0] for keys in found.values() for key in keys})
        if missing:
            raise ModelError(
                f"{name}: layers {missing} keep states elsewhere than in the cache of transformers, from where they could be "
                "rolled back; specdec cannot serve this model"
            )
        if attended & set(found):
            both = type(min(attended & set(found), key=id)).__name__
            raise ModelError(f"{name}: {both} keeps a state and attends, and specdec runs them apart")
        states = {key: cache.read(key) for keys in found.values() for key in keys}
        self._pool = StatePool(states)
        for number, (module, keys) in enumerate(found.items()):
            module.forward = SplitForward(module, number, list(dict.fromkeys(keys)))


def request_states(module: nn.Module, *, is_invariant: bool) -> RequestStates | None:
    """Return the states of a model's layers; None if none keeps any.

    Raises:
        ModelError: for a model that is spread over several devices, or batch-invariant logits.
    """
    model = cast("PreTrainedModel", module)
    if isinstance(module, DraftHead) or not keeps_states(model.config):
        return None
    if found := places(model):
        raise ModelError(
            f"{type(module).__name__} keeps recurrent states, and is spread over {', '.join(sorted(found))}: such layers are "
            "served on one device, without device_map"
        )
    if is_invariant:
        raise ModelError(
            f"{type(module).__name__} keeps recurrent states, whose layers have no form with the same bits in any pass: leave "
            "deterministic out"
        )
    return RequestStates(model)


@contextmanager
def _innermost(model: nn.Module) -> Iterator[list[nn.Module]]:
    """Have a list of the modules of a model whose `forward` runs, the innermost last."""
    stack: list[nn.Module] = []
    handles = []

    def enter(module: nn.Module, _: Any) -> None:
        stack.append(module)

    def leave(*_: Any) -> None:
        stack.pop()

    for module in model.modules():
        handles += [
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave, always_call=True),
        ]
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


class StatefulCache(KVCache):
    """A `KVCache` whose rows' snapshots move with them.

    Args:
        num_slots: see `KVCache`.
        device: ditto.
        states: the states of the same model.
    """

    def __init__(self, num_slots: int, device: torch.device, states: RequestStates) -> None:
        super().__init__(num_slots, device)
        self._states = states

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        """See `KVCache.copy`."""
        super().copy(source, destination, num_rows)
        self._states.move(source, destination, num_rows)
