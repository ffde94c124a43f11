"""The states of all requests of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from specdec import ModelError
from specdec_runtime.interfaces.forward import PackedBatch
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.models.spread import places
from specdec_runtime.models.state_layers import keeps_states
from specdec_runtime.states.checkpoints import Checkpoints
from specdec_runtime.states.continuation import check_continuation
from specdec_runtime.states.pool import StatePool

# What imports transformers, which takes seconds, is imported when there is a model: plugins are listed without it.
if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_runtime.interfaces.pass_cache import PassCache
    from specdec_runtime.states.state_cache import StateCache, StateKey

_SNAPSHOTS = 4
"""Snapshots for each request that can run. A pass takes three of a request at most."""


class RequestStates:
    """The states of one model's layers, for every request and for cached prefixes.

    Passes of the model are given a cache from here, which has each request's state. `Segment` says what was drafted, and where
    the next pass of a request begins says what was accepted.
    """

    def __init__(self) -> None:
        self.layers_without_attention: AbstractSet[int] = frozenset()
        """The layers that keep states instead of keys and values, or neither; known from `find` on."""
        self.max_requests = 0
        """Maximum number of requests that can run at once; known from `allocate` on."""
        self.layers: dict[int, int] = {}
        """Layers that keep states, and how many of each kind."""
        self.continues_one_by_one = False
        """Whether layers take only one row at a time after a state; `transformers`' Mamba layers drop the state otherwise."""
        self._pool = StatePool({})
        self._checkpoints = Checkpoints(0, 0, 0, 0, self._pool.copy)
        self._allocated: tuple[int, int, int] | None = None
        self._model_name = ""

    def bytes_per_request(self, *, is_prefix_cached: bool) -> int:
        """Return the memory of one request's states, with its share of those of cached prefixes."""
        return (2 + _SNAPSHOTS * is_prefix_cached) * self._pool.num_bytes

    def allocate(self, num_requests: int, block_size: int, lag: int = 0) -> None:
        """Allocate memory.

        Args:
            num_requests: maximum number of requests that run at once.
            block_size: tokens per block of the prefix cache; 0 without.
            lag: number of last rows of a cached prefix that run again: 1 if a proposer reads their hidden states.
        """
        num_snapshots = _SNAPSHOTS * num_requests if block_size else 0
        self.max_requests, self._allocated = num_requests, (num_requests, block_size, lag)
        self._pool.allocate(2 * num_requests + num_snapshots)
        self._checkpoints = Checkpoints(num_requests, num_snapshots, block_size, lag, self._pool.copy)

    def free(self) -> None:
        """Let all memory go until `renew`."""
        self._pool.allocate(0)

    def renew(self) -> None:
        """Allocate again what was allocated, and forget all states."""
        if self._allocated is not None:
            self.allocate(*self._allocated)

    def resume(self, owner: object, first_slot: int, num_rows: int) -> int:
        """Give a placed request the state that is kept for its first rows."""
        return self._checkpoints.resume(owner, first_slot, num_rows)

    def holds(self, owner: object, num_rows: int) -> bool:
        """Return whether a pass of a request can begin after `num_rows` rows."""
        return self._checkpoints.holds(owner, num_rows)

    def release(self, owner: object) -> None:
        """Drop a request's states."""
        self._checkpoints.release(owner)

    def move(self, source: int, destination: int, num_rows: int) -> None:
        """Move the snapshots of cache rows that are copied."""
        self._checkpoints.move(source, destination, num_rows)

    def cache(self, batch: PackedBatch, length: int = 0) -> StateCache:
        """Return the cache of a pass, which says that it holds `length` tokens."""
        from specdec_runtime.states.state_cache import StateCache, Work

        cache = StateCache(length, self.layers)
        plan = self._checkpoints.plan(batch)
        cache.work = Work(plan, self._pool, len(batch.token_ids), self.continues_one_by_one)
        return cache

    def make_kv_cache(self, num_slots: int, device: torch.device) -> KVCache:
        """Return a cache of keys and values, whose rows take the states of cached prefixes with them when they are copied."""
        return StatefulCache(num_slots, device, self)

    def check(
        self, run: Callable[[PackedBatch], torch.Tensor], batch: PackedBatch, dtype: torch.dtype
    ) -> None:
        """Check that the model continues from kept states as if the text had been run at once.

        Args:
            run: runs a pass; returns its logits.
            batch: a pass of one request, from its beginning.
            dtype: of the model; its logits may be wider.

        Raises:
            ModelError: if it does not.
        """
        check_continuation(self, run, batch, name=self._model_name, dtype=dtype)

    def find(self, model: PreTrainedModel, run: Callable[[PassCache], object]) -> None:
        """Find the modules that keep states, in a pass of one text, and prepare them for passes of several requests.

        Args:
            model: the model.
            run: runs the pass with a cache.

        Raises:
            ModelError: if a layer does not keep its state in the cache, or attends in the same module.
        """
        from specdec_runtime.states.layer_kinds import layers_without_attention, state_layers
        from specdec_runtime.states.split_forward import SplitForward
        from specdec_runtime.states.state_cache import StateCache

        self.layers = state_layers(model.config)
        self.layers_without_attention = layers_without_attention(model.config)
        self._model_name = name = type(model).__name__
        cache = StateCache(0, self.layers)
        found: dict[nn.Module, list[StateKey]] = {}
        with _innermost(model) as stack:
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


def layer_states(module: nn.Module, *, is_invariant: bool) -> RequestStates | None:
    """Return what keeps the states of a model's layers; None if none keeps any.

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
    return RequestStates()


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
        """Copy `num_rows` consecutive rows of every layer."""
        super().copy(source, destination, num_rows)
        self._states.move(source, destination, num_rows)
