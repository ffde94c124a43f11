"""Drafts chains with a model or head that runs compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache as remembered
from itertools import accumulate
from operator import add
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import NoiseKeys
from specdec.noise import Stream, node_word
from specdec.runner.fused.host_stack import HostStack
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.host.chain import run_chain
from specdec.runner.host.product import MAX_PRODUCT_ROWS
from specdec.runner.kv_cache import KVCache

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_LOWEST_TEMPERATURE = 1e-35
_NONE = np.empty((0, 0), np.float32)
_NO_TOKENS = np.empty(0, np.int64)
MAX_CHAIN_ROWS = MAX_PRODUCT_ROWS
"""The most rows that `run_chain` is the fastest way for."""


@dataclass(frozen=True, eq=False)
class ChainRules:
    """How a chain chooses its tokens. Recorded loops belong to one instance of it.

    Args:
        num_ids: only logits below it are looked at.
        target_ids: `[num_ids]` the target's id of each, ascending, or None where they are the same.
        is_drawn: whether tokens are drawn from a stream of their own and the laws kept; else the noise of `strict` chooses.
        wants_chances: whether the probability of each token is wanted.
    """

    num_ids: int
    target_ids: Ints | None = None
    is_drawn: bool = False
    wants_chances: bool = False


@dataclass(frozen=True)
class NewRows:
    """Tokens to take in before a chain is drafted, one request's after another's."""

    token_ids: Ints
    """`[T]` the draft's ids."""
    counts: Sequence[int]
    """`[B]` how many there are of each request; at least one."""
    features: Floats | None = None
    """`[T, F]` for heads."""


@dataclass(frozen=True)
class Chains:
    """What was drafted."""

    token_ids: Ints
    """`[B, K]` the target's ids."""
    chances: Floats
    """`[B, K]` the draft's own probability of each, or empty."""
    laws: torch.Tensor
    """`[B, K, num_ids]` the law each was drawn from, where the runner is, or empty."""
    logits: Floats = field(default_factory=lambda: _NONE)
    """`[B, V]` of each request's last new token; empty where nothing was taken in."""
    states: Floats = field(default_factory=lambda: _NONE)
    """`[B, H]` ditto: the carry of a head."""


class Chain(Protocol):
    """A draft loop that runs without the interpreter between its steps."""

    @property
    def max_rows(self) -> int:
        """The most requests that it drafts for together."""

    @property
    def max_new_rows(self) -> int:
        """The most new tokens that it takes in before it drafts; 0: it begins from logits only."""

    def draft(
        self,
        cache: KVCache,
        logits: torch.Tensor,
        states: torch.Tensor | None,
        first_slots: Sequence[int],
        num_cached: Sequence[int],
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        rules: ChainRules,
    ) -> Chains:
        """Return `num_steps` tokens for each row; see `ModelRunner.draft_chain`."""


class HostChain:
    """The whole draft loop of a model or head in one call.

    Args:
        stack: the model.
        rotary: its rotary factors.
    """

    max_rows = max_new_rows = MAX_CHAIN_ROWS

    def __init__(self, stack: HostStack, rotary: RotaryTable) -> None:
        self._stack, self._rotary = stack, rotary

    def draft(
        self,
        cache: KVCache,
        logits: torch.Tensor,
        states: torch.Tensor | None,
        first_slots: Sequence[int],
        num_cached: Sequence[int],
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        rules: ChainRules,
    ) -> Chains:
        """Return `num_steps` tokens for each row; see `ModelRunner.draft_chain`."""
        num_rows = len(first_slots)
        carried = np.empty((num_rows, self._stack.hidden_size), np.float32)
        if states is not None:
            carried[:] = states.float().numpy()
        ones = [1] * num_rows
        segments = np.array([range(num_rows), ones, first_slots, num_cached, [-1] * num_rows], np.int64)
        length = max(num_cached) + num_steps
        return self._run(
            cache, None, logits.float().contiguous().numpy(), carried, segments, length, num_steps, temperatures, keys,
            rules,
        )  # fmt: skip

    def draft_after(
        self,
        cache: KVCache,
        rows: NewRows,
        first_slots: Sequence[int],
        num_cached: Sequence[int],
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        rules: ChainRules,
    ) -> Chains:
        """Take in new rows first; see `CachedRunner.draft_after`."""
        num_rows = len(first_slots)
        starts = [0, *accumulate(rows.counts)]
        segments = np.array([starts[:-1], rows.counts, first_slots, num_cached, [-1] * num_rows], np.int64)
        length = max(map(add, num_cached, rows.counts)) + num_steps
        logits = np.empty((num_rows, self._stack.num_logits), np.float32)
        states = np.empty((num_rows, self._stack.hidden_size), np.float32)
        return self._run(cache, rows, logits, states, segments, length, num_steps, temperatures, keys, rules)

    def _run(
        self,
        cache: KVCache,
        rows: NewRows | None,
        logits: Floats,
        states: Floats,
        segments: Ints,
        length: int,
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        rules: ChainRules,
    ) -> Chains:
        num_rows, stack = len(logits), self._stack
        tokens, features, taken_logits, taken_states = _NO_TOKENS, _NONE, _NONE, _NONE
        if rows is not None:
            tokens = rows.token_ids
            features = _NONE if rows.features is None else rows.features
            taken_logits, taken_states = np.empty_like(logits), np.empty_like(states)
        out = np.empty((num_rows, num_steps), np.int64)
        chances = np.empty((num_rows, num_steps if rules.wants_chances else 0), np.float32)
        laws = np.empty((num_rows, num_steps, rules.num_ids if rules.is_drawn else 0), np.float32)
        # A temperature that float32 rounds to 0 is still not greedy.
        heat = np.array([max(t, _LOWEST_TEMPERATURE) if t > 0 else 0.0 for t in temperatures], np.float32)
        run_chain(
            tokens, features, taken_logits, taken_states, logits, states, rules.num_ids,
            _NO_TOKENS if rules.target_ids is None else rules.target_ids, heat, keys.seeds, keys.samples, keys.positions,
            _words(num_steps, rules.is_drawn), not rules.is_drawn, stack.table, stack.frame, stack.numbers, stack.like,
            stack.bind(cache), cache.num_slots, *self._rotary.host_tables(length), segments, out, chances, laws,
        )  # fmt: skip
        return Chains(out, chances, torch.from_numpy(laws), taken_logits, taken_states)


@remembered
def _words(num_steps: int, is_drawn: bool) -> Ints:
    """Return the counter words of the draws of a chain."""
    stream = Stream.DRAFT if is_drawn else Stream.TARGET
    return np.array([node_word(stream, step if is_drawn else 0) for step in range(num_steps)])
