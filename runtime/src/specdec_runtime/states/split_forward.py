"""Runs a layer that keeps states on each request's rows of a packed pass, and on kept rows that it must run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from specdec_runtime.states.checkpoints import Group, StateSpan
from specdec_runtime.states.pool import StatePool
from specdec_runtime.states.state_cache import StateCache, StateKey, Work


class SplitForward:
    """Replaces `forward` of a module that keeps states; outside our passes it is the module's own.

    Args:
        module: the module.
        number: its number among those of the model.
        keys: the states that it writes.
    """

    def __init__(self, module: nn.Module, number: int, keys: list[StateKey]) -> None:
        self._module, self._number, self._keys = module, number, keys

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module: all of a pass's texts if the cache has a plan for them."""
        cache = next((a for a in (*args, *kwargs.values()) if isinstance(a, StateCache)), None)
        if cache is None or cache.work is None:
            return self._forward(*args, **kwargs)
        work = cache.work
        leaves, form = pytree.tree_flatten((args, kwargs))
        per_row = [index for index, leaf in enumerate(leaves) if _has_rows(leaf, work.num_rows)]
        given = [leaves[index] for index in per_row]

        def run(inputs: list[torch.Tensor]) -> Any:
            for index, rows in zip(per_row, inputs, strict=True):
                leaves[index] = rows
            positional, named = pytree.tree_unflatten(leaves, form)
            return self._forward(*positional, **named)

        for rows, request in work.plan.keeps:
            new, before = [leaf[:, rows].clone() for leaf in given], request.inputs.get(self._number)
            joined = new if before is None else [torch.cat(each, 1) for each in zip(before, new, strict=True)]
            request.inputs[self._number] = joined
        return self._run_stages(cache, work, given, run)

    def _run_stages(
        self,
        cache: StateCache,
        work: Work,
        given: list[torch.Tensor],
        run: Callable[[list[torch.Tensor]], Any],
    ) -> Any:
        """Return the output for all rows of the pass."""
        joined: list[Any] = []
        form = None
        for group in (group for stage in work.plan.stages for group in stage):
            inputs = [self._inputs(span, given) for span in group.spans]
            rows = inputs[0] if len(inputs) == 1 else [torch.cat(each) for each in zip(*inputs, strict=True)]
            self._load(cache, work.pool, group)
            is_one_by_one = work.is_one_by_one and not group.begins_texts
            output = _one_by_one(run, rows) if is_one_by_one else run(rows)
            self._store(cache, work.pool, group)
            if not group.is_of_pass:
                continue
            if len(inputs) == 1 and group.num_rows == work.num_rows:
                return output
            found, form = pytree.tree_flatten(output)
            joined = joined or [_whole(leaf, group.num_rows, work.num_rows) for leaf in found]
            for whole, leaf in zip(joined, found, strict=True):
                if isinstance(whole, torch.Tensor):
                    for row, span in enumerate(group.spans):
                        whole[0, span.rows] = leaf[row]
        assert form is not None
        return pytree.tree_unflatten(joined, form)

    def _inputs(self, span: StateSpan, given: list[torch.Tensor]) -> list[torch.Tensor]:
        source = given if span.inputs is None else span.inputs[self._number]
        return [leaf[:, span.rows] for leaf in source]

    def _load(self, cache: StateCache, pool: StatePool, group: Group) -> None:
        """Give the layer the states before a group's rows."""
        for layer in {layer for layer, _, _ in self._keys}:
            cache.clear(layer)
        if group.sources is not None:
            for key in self._keys:
                cache.put(key, pool.read(key, group.sources))

    def _store(self, cache: StateCache, pool: StatePool, group: Group) -> None:
        """Keep the states after a group's rows."""
        if group.stored is not None:
            for key in self._keys:
                pool.write(key, cache.read(key), *group.stored)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self._module).forward(self._module, *args, **kwargs)


def _one_by_one(run: Callable[[list[torch.Tensor]], Any], inputs: list[torch.Tensor]) -> Any:
    """Return the output for rows `[B, n, ...]` that are run one after another."""
    outputs, form = [], None
    for row in range(inputs[0].shape[1]):
        leaves, form = pytree.tree_flatten(run([each[:, row : row + 1] for each in inputs]))
        outputs.append(leaves)
    assert form is not None
    joined = [torch.cat(c, 1) if isinstance(c[0], torch.Tensor) else c[0] for c in zip(*outputs, strict=True)]
    return pytree.tree_unflatten(joined, form)


def _has_rows(leaf: Any, num_rows: int) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim >= 2 and tuple(leaf.shape[:2]) == (1, num_rows)


def _whole(leaf: Any, num_given: int, num_rows: int) -> Any:
    """Return memory for one output of all rows of the pass; an output that is not per row is returned itself."""
    if isinstance(leaf, torch.Tensor) and leaf.ndim >= 2 and leaf.shape[1] == num_given:
        return leaf.new_empty(1, num_rows, *leaf.shape[2:])
    return leaf
